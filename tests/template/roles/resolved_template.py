"""The template as CloudFormation sees it, with SAM's transform applied and conditions and functions resolved.

Physical names are those of the account in `tests/unit/fuzz`. A resource without one there has its logical id as a name.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.simulation.account.items import DOWNSTREAMS, LEDGER, REQUESTS, SEEN, SLOTS, TOKENS
from tests.template.parsing import REGION, parsed_template, translated

ROOT = Path(__file__).parents[3]
ACCOUNT, PARTITION = "123456789012", "aws"

NAMES = {
    "SlotTable": SLOTS,
    "RequestTable": REQUESTS,
    "TokenTable": TOKENS,
    "SeenSignatureTable": SEEN,
    "RequestLedgerTable": LEDGER,
    "DownstreamTable": DOWNSTREAMS,
    "RequestQueue": "requests.fifo",
    "RequestDeadLetterQueue": "dead.fifo",
    "WorkQueue": "work",
    "WorkDeadLetterQueue": "work-dead",
    "Workflow": "workflow",
    "SampleJob": "job",
}
# By type: the ARN after "arn:<partition>:" and the value of Ref (CloudFormation guide, "Return values" of each type).
_ARNS = {
    "AWS::ApiGateway::RestApi": "apigateway:{region}::/restapis/{name}",
    "AWS::DynamoDB::Table": "dynamodb:{region}:{account}:table/{name}",
    "AWS::Events::EventBus": "events:{region}:{account}:event-bus/{name}",
    "AWS::Events::Rule": "events:{region}:{account}:rule/{name}",
    "AWS::Glue::Job": "glue:{region}:{account}:job/{name}",
    "AWS::IAM::Role": "iam::{account}:role/{name}",
    "AWS::KMS::Key": "kms:{region}:{account}:key/{name}",
    "AWS::Lambda::Function": "lambda:{region}:{account}:function:{name}",
    "AWS::Logs::LogGroup": "logs:{region}:{account}:log-group:{name}:*",
    "AWS::S3::Bucket": "s3:::{name}",
    "AWS::SNS::Topic": "sns:{region}:{account}:{name}",
    "AWS::SSM::Parameter": "ssm:{region}:{account}:parameter/{name}",
    "AWS::SQS::Queue": "sqs:{region}:{account}:{name}",
    "AWS::Scheduler::ScheduleGroup": "scheduler:{region}:{account}:schedule-group/{name}",
    "AWS::SecretsManager::Secret": "secretsmanager:{region}:{account}:secret:{name}-AbCdEf",
    "AWS::StepFunctions::StateMachine": "states:{region}:{account}:stateMachine:{name}",
}
_REF_IS_THE_ARN = {"AWS::SNS::Topic", "AWS::SecretsManager::Secret", "AWS::StepFunctions::StateMachine"}
_NO_VALUE = object()
# Parameters that deploy the optional flows.
CHATBOT = {"ChatApiUrl": "https://chat-api.invalid"}
WORKER = {"DeployWorker": "true"}


class Stack:
    """The stack with these parameters and the template's defaults for the others."""

    def __init__(self, **parameters: str) -> None:
        self.parameters = {n: p.get("Default", "") for n, p in parsed_template()["Parameters"].items()}
        assert parameters.keys() <= self.parameters.keys()
        self.parameters |= parameters
        self.template = translated(parsed_template(), **self.parameters)
        self.resources: dict[str, dict[str, Any]] = {}
        there = {n: r for n, r in self.template["Resources"].items() if self.holds(r.get("Condition"))}
        self._types = {name: resource["Type"] for name, resource in there.items()}
        for name, resource in there.items():
            self.resources[name] = self.resolve(resource)

    def of_type(self, kind: str) -> dict[str, dict[str, Any]]:
        """The properties of every resource of a type, by logical id."""
        return {n: r.get("Properties", {}) for n, r in self.resources.items() if r["Type"] == kind}

    def properties(self, name: str) -> dict[str, Any]:
        declared: dict[str, Any] = self.resources[name]["Properties"]
        return declared

    def outputs(self) -> dict[str, Any]:
        """The values of the outputs whose conditions hold."""
        there = {n: o for n, o in self.template["Outputs"].items() if self.holds(o.get("Condition"))}
        return {name: self.resolve(output["Value"]) for name, output in there.items()}

    def environment(self, function: str) -> dict[str, str]:
        variables = self.properties(function)["Environment"]["Variables"]
        return {name: str(value) for name, value in variables.items()}

    def arn(self, name: str) -> str:
        # No grant names a resource of another type, so any ARN will do.
        form = _ARNS.get(self._types[name], "unknown:{region}:{account}:{name}")
        return f"arn:{PARTITION}:" + form.format(region=REGION, account=ACCOUNT, name=self.physical(name))

    def physical(self, name: str) -> str:
        return NAMES.get(name, name)

    @cached_property
    def logical(self) -> dict[str, str]:
        """Logical ids by ARN."""
        return {self.arn(name): name for name in self._types}

    def uses_own_key(self, arn: str) -> bool:
        """Whether the resource of an ARN is encrypted with the customer managed key.

        Of an object that is its bucket, of an index its table, of an execution its state machine. A schedule has the
        key of its call.
        """
        machine = arn.replace(":execution:", ":stateMachine:").rpartition(":")[0]
        within = (arn, arn.partition("/")[0], arn.partition("/index/")[0], machine)
        name = next((self.logical[each] for each in within if each in self.logical), "")
        key = self.parameters["KmsKeyArn"]
        uses = json.dumps(self.resources[name].get("Properties", {})) if name else key * (":schedule/" in arn)
        return bool(key and key in uses)

    def resolve(self, node: Any) -> Any:
        if isinstance(node, list):
            return [made for each in node if (made := self.resolve(each)) is not _NO_VALUE]
        if not isinstance(node, dict):
            return node
        if len(node) == 1:
            ((function, argument),) = node.items()
            if function == "Ref" or function.startswith("Fn::"):
                return self._called(function, argument)
        return {key: made for key, each in node.items() if (made := self.resolve(each)) is not _NO_VALUE}

    def _called(self, function: str, argument: Any) -> Any:
        match function:
            case "Ref":
                return self._ref(argument)
            case "Fn::GetAtt":
                name, attribute = argument if isinstance(argument, list) else argument.split(".", 1)
                return self._attribute(name, attribute)
            case "Fn::If":
                return self.resolve(argument[1] if self.holds(argument[0]) else argument[2])
            case "Fn::Sub":
                text, values = argument if isinstance(argument, list) else (argument, {})
                return self._substituted(text, self.resolve(values))
            case "Fn::Join":
                return argument[0].join(map(str, self.resolve(argument[1])))
            case "Fn::Split":
                return self.resolve(argument[1]).split(argument[0])
        raise NotImplementedError(f"{function}: add it to Stack._called in tests/template/roles/resolved_template.py")

    def _ref(self, name: str) -> Any:
        if name == "AWS::NoValue":
            return _NO_VALUE
        pseudo = {
            "AWS::Region": REGION,
            "AWS::AccountId": ACCOUNT,
            "AWS::Partition": PARTITION,
            "AWS::StackName": "slotkeeper",
            "AWS::StackId": f"arn:{PARTITION}:cloudformation:{REGION}:{ACCOUNT}:stack/slotkeeper/1",
            "AWS::URLSuffix": "amazonaws.com",
        }
        if name in pseudo:
            return pseudo[name]
        if name in self.parameters:
            value = self.parameters[name]
            is_list = "List" in self.template["Parameters"][name]["Type"]
            return str(value).split(",") if is_list else value
        if self._types[name] in _REF_IS_THE_ARN:
            return self.arn(name)
        if self._types[name] == "AWS::SQS::Queue":
            return f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{self.physical(name)}"
        return self.physical(name)

    def _attribute(self, name: str, attribute: str) -> str:
        assert name in self._types, f"{name} is not deployed"
        # A secret's Id is its ARN. Every other attribute here is a name.
        return self.arn(name) if attribute in ("Arn", "Id", "TopicArn") else self.physical(name)

    def _substituted(self, text: str, values: Mapping[str, Any]) -> str:
        def value(match: re.Match[str]) -> str:
            name = match[1]
            if name in values:
                return str(values[name])
            return str(self._attribute(*name.split(".", 1)) if "." in name else self._ref(name))

        return re.sub(r"\$\{([\w:.]+)\}", value, text).replace("${!", "${")

    def holds(self, condition: Any) -> bool:
        """Whether a condition, a name or an expression, is true. None counts as true."""
        if condition is None:
            return True
        expression = self.template["Conditions"][condition] if isinstance(condition, str) else condition
        ((function, parts),) = expression.items()
        match function:
            case "Condition":
                return self.holds(parts)
            case "Fn::Not":
                return not self.holds(parts[0])
            case "Fn::And":
                return all(map(self.holds, parts))
            case "Fn::Or":
                return any(map(self.holds, parts))
            case "Fn::Equals":
                left, right = self.resolve(copy.copy(parts))
                return str(left) == str(right)
        raise NotImplementedError(f"{function}: add it to Stack.holds in tests/template/roles/resolved_template.py")

    def users_of(self, role: str) -> Iterator[str]:
        """The resources whose Role or RoleArn is this role."""
        for name, resource in self.resources.items():
            properties = resource.get("Properties", {})
            if self.arn(role) in [properties.get(place) for place in ("Role", "RoleArn")]:
                yield name
