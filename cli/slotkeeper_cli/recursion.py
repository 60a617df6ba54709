"""Lambda's recursion setting of each function of the stack: as it is, and as the template has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slotkeeper_cli.resources import resources, template_of
from slotkeeper_cli.stack import Stack

# What Lambda does where a template says nothing (Lambda API Reference, GetFunctionRecursionConfig).
DEFAULT = "Terminate"
WHY = {
    "Allow": "it sends to its own queue on purpose; its policy's attempts and age end the chain",
    "Terminate": "no loop is intended: Lambda ends one after some 16 rounds, and an alarm rings",
}


@dataclass(frozen=True)
class Setting:
    """One function's."""

    function: str
    name: str
    deployed: str
    template: str

    @property
    def differs(self) -> bool:
        return self.deployed != self.template


def settings(stack: Stack, template: Mapping[str, Any] | None = None) -> list[Setting]:
    """Of each function of the stack, by logical id."""
    declared = (template or template_of(stack))["Resources"]
    functions = stack.client("lambda")
    found = []
    for one in resources(stack):
        if one.kind == "AWS::Lambda::Function":
            deployed = functions.get_function_recursion_config(FunctionName=one.name)["RecursiveLoop"]
            wanted = declared.get(one.logical_id, {}).get("Properties", {}).get("RecursiveLoop", DEFAULT)
            found.append(Setting(one.logical_id, one.name, deployed, wanted))
    return found
