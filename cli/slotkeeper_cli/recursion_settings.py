"""Lambda's recursion setting of each function of the stack: as it is, and as the template has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.stack_resources import resources, template_of

# What Lambda does where a template says nothing (Lambda API Reference, GetFunctionRecursionConfig).
DEFAULT = "Terminate"
WHY = {
    "Allow": "it sends to its own queue by design; the policy's attempts and age end the chain",
    "Terminate": "no loop is intended: Lambda ends one after about 16 invocations, and an alarm reports it",
}


@dataclass(frozen=True)
class RecursionSetting:
    """One function's."""

    function: str
    name: str
    deployed: str
    template: str

    @property
    def differs(self) -> bool:
        return self.deployed != self.template


def settings(stack: StackConnection, template: Mapping[str, Any] | None = None) -> list[RecursionSetting]:
    """Of each function of the stack, by logical id."""
    declared = (template or template_of(stack))["Resources"]
    functions = stack.client("lambda")
    result = []
    for one in resources(stack):
        if one.kind == "AWS::Lambda::Function":
            deployed = functions.get_function_recursion_config(FunctionName=one.name)["RecursiveLoop"]
            wanted = declared.get(one.logical_id, {}).get("Properties", {}).get("RecursiveLoop", DEFAULT)
            result.append(RecursionSetting(one.logical_id, one.name, deployed, wanted))
    return result
