"""The template's stateful resources, and the effect of an update on each.

CloudFormation replaces a resource, with a new and empty one, if its type or a create-only property of it changes, and
deletes one whose logical id is not in the new template (CloudFormation guide, "Update behaviors of stack resources" and
"DeletionPolicy attribute"). Each type's schema lists its create-only properties ("Resource type schema",
createOnlyProperties); cfn-lint contains the schemas.

The baseline, stateful.yaml, lists the resources that deployed stacks may have. This command adds new ones to it:

    build/venv/bin/python -m tests.template.stateful

It refuses a change that loses a resource. To accept that loss, first delete the resource's entry in the baseline.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.template.parsing import REGION, parsed_template, translated

ROOT = Path(__file__).parents[2]
BASELINE = Path(__file__).with_name("stateful.yaml")
POLICIES = ("DeletionPolicy", "UpdateReplacePolicy")
RETAINED = ("Retain", "RetainExceptOnCreate")

# Types whose resources store data, or whose name is used outside the stack, and the loss if one is deleted.
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


def losses(before: Template, after: Template) -> list[str]:
    """One sentence per loss that an update from `before` to `after` would cause; both are results of `stateful`."""
    return [sentence for name in before for sentence in _losses(name, before[name], after.get(name))]


def _losses(name: str, before: Template, after: Template | None) -> Iterator[str]:
    content = STATEFUL[before["Type"]]
    deleted, replaced = (
        f"{content} is kept, cut off from the stack" if before.get(policy) in RETAINED else f"{content} is lost"
        for policy in POLICIES
    )
    if after is None:
        yield (
            f"{name} is not in the template: CloudFormation treats a renamed logical id as a deletion and a new "
            f"resource, and {deleted}. Restore its logical id"
        )
        return
    if after["Type"] != before["Type"]:
        yield f"{name} was {before['Type']} and is {after['Type']}: {replaced}. Add a new resource instead"
        return
    fixed, now_fixed = (each.get("CreateOnly", {}) for each in (before, after))
    for path in sorted({*fixed, *now_fixed}):
        old, new = fixed.get(path), now_fixed.get(path)
        if old != new:
            yield (
                f"{name} would be replaced by a new one, since {path.removeprefix('/properties/')} is create-only and "
                f"changes from {old!r} to {new!r}: {replaced}. Keep the property unchanged, or add a new resource "
                "and move the data of the old one"
            )
    if after.get("When") != before.get("When"):
        yield (
            f"{name} had the condition {before.get('When', 'none')} and has {after.get('When', 'none')}: a stack "
            f"in which that is false deletes it, and {deleted}. Restore its condition"
        )
    for policy in POLICIES:
        if before.get(policy) in RETAINED and after.get(policy) not in RETAINED:
            yield (
                f"{name} had the {policy} {before[policy]} and has {after.get(policy, 'none, which is Delete')}: "
                f"{content} would be deleted with it. Keep it"
            )


def read_baseline() -> dict[str, Any]:
    """The stateful resources that deployed stacks may have."""
    baseline: dict[str, Any] = yaml.safe_load(BASELINE.read_text())
    return baseline


def main() -> None:
    """Add the new stateful resources of template.yaml to the baseline."""
    before, after = read_baseline(), stateful(translated(parsed_template()))
    if lost := losses(before, after):
        raise SystemExit("\n".join(lost))
    BASELINE.write_text(yaml.safe_dump(after, default_flow_style=None, sort_keys=True, width=120))
    print(f"{len(after)} stateful resources, {len(after.keys() - before.keys())} of them new: {BASELINE}")


if __name__ == "__main__":
    main()
