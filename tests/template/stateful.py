"""The template's stateful resources, and the effect of an update on each.

CloudFormation replaces a resource, with a new and empty one, if its type or a create-only property of it changes, and
deletes one whose logical id is not in the new template (CloudFormation guide, "Update behaviors of stack resources" and
"DeletionPolicy attribute"). Each type's schema lists its create-only properties ("Resource type schema",
createOnlyProperties); cfn-lint contains the schemas.

The baseline, stateful.yaml, has the resources of deployed stacks, with all that decides the effect of an update. A
difference from it loses a resource, or adds one. After a resource was added, this command writes the baseline:

    build/venv/bin/python -m tests.template.stateful
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.template.parsing import REGION, parsed_template, translated

ROOT = Path(__file__).parents[2]
BASELINE = Path(__file__).with_name("stateful.yaml")
POLICIES = ("DeletionPolicy", "UpdateReplacePolicy")
RETAINED = ("Retain", "RetainExceptOnCreate")

# Types whose resources store data, or whose name is used outside the stack, and the loss if one is deleted or replaced.
STATEFUL = {
    "AWS::ApiGateway::RestApi": "the URL that the chat service sends to",
    "AWS::DynamoDB::Table": "its items",
    "AWS::Logs::LogGroup": "the log",
    "AWS::S3::Bucket": "its objects",
    "AWS::SNS::Topic": "its confirmed subscriptions",
    "AWS::SQS::Queue": "its messages, and the URL that producers send to",
    "AWS::SSM::Parameter": "the value that operators put",
    "AWS::Scheduler::ScheduleGroup": "its scheduled retries",
    "AWS::SecretsManager::Secret": "its value, which others sign with or have been given",
    "AWS::StepFunctions::StateMachine": "its executions, whose ARNs identify the holders of slots",
}

Template = Mapping[str, Any]


def create_only(resource: Template) -> dict[str, Any]:
    """A resource's create-only properties: path in the schema -> value in the template."""
    from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER  # cfn-lint takes a second to import

    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema(REGION, resource["Type"]).schema
    paths = [*schema.get("createOnlyProperties", []), *schema.get("conditionalCreateOnlyProperties", [])]
    values = {path: _at(resource.get("Properties", {}), path.split("/")[2:]) for path in sorted(paths)}
    return {path: value for path, value in values.items() if value is not None}


def _at(value: Any, names: list[str]) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def stateful(template: Template) -> dict[str, dict[str, Any]]:
    """The stateful resources of a translated template, each with the fields that decide the effect of an update."""
    return {
        name: {
            "Type": resource["Type"],
            **{key: resource[key] for key in POLICIES if key in resource},
            **({"When": json.dumps(template["Conditions"][resource["Condition"]])} if "Condition" in resource else {}),
            **({"CreateOnly": fixed} if (fixed := create_only(resource)) else {}),
        }
        for name, resource in sorted(template["Resources"].items())
        if resource["Type"] in STATEFUL
    }


def read_baseline() -> dict[str, Any]:
    """The stateful resources that deployed stacks may have."""
    baseline: dict[str, Any] = yaml.safe_load(BASELINE.read_text())
    return baseline


def main() -> None:
    """Write the stateful resources of template.yaml as the baseline."""
    held = stateful(translated(parsed_template()))
    BASELINE.write_text(yaml.safe_dump(held, default_flow_style=None, sort_keys=True, width=120))
    print(f"{len(held)} stateful resources: {BASELINE}. Keep each entry that the last version had")


if __name__ == "__main__":
    main()
