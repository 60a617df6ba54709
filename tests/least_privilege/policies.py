"""What roles are allowed, and what calls ask for, in IAM's terms.

IAM guide, "Policy evaluation logic" and "IAM JSON policy elements": without a statement that allows it, a call is
denied. No role here has a Deny, and `grants` refuses what it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from tests.least_privilege.resolved_template import Stack

EVERYTHING = "*"


@dataclass(frozen=True)
class Need:
    """One permission that somebody asks for. `by` tells who and what for; a service's own names AWS's page on it.

    `context`: the condition keys that IAM has with the call.
    """

    action: str
    resource: str
    by: str
    context: Mapping[str, str] = field(default_factory=dict, hash=False, compare=False)


@dataclass(frozen=True)
class Grant:
    """One action on one resource (a pattern) that a role may do, under `conditions` that all have to hold."""

    role: str
    action: str
    resource: str
    conditions: tuple[tuple[str, str], ...] = ()

    def allows(self, need: Need) -> bool:
        return (
            self.action.lower() == need.action.lower()
            and matches(self.resource, need.resource)
            and all(need.context.get(key) == value for key, value in self.conditions)
        )

    def __str__(self) -> str:
        return f"{self.role}: {self.action} on {self.resource}"


def matches(pattern: str, arn: str) -> bool:
    """IAM guide, "IAM JSON policy elements: Resource": * and ? stand for characters within a part of an ARN.

    A lone * is everything; nothing here writes a [, which fnmatch would take for a set.
    """
    if pattern == EVERYTHING:
        return True
    ours, theirs = pattern.split(":", 5), arn.split(":", 5)
    return len(ours) == len(theirs) and all(map(fnmatchcase, theirs, ours))


def grants(stack: Stack, role: str) -> list[Grant]:
    """Every action on every resource, one by one."""
    properties = stack.properties(role)
    assert not properties.get("ManagedPolicyArns"), f"{role}: a managed policy is wider than what is used"
    granted = []
    for policy in properties.get("Policies", []):
        for statement in policy["PolicyDocument"]["Statement"]:
            assert statement["Effect"] == "Allow", statement
            assert statement.keys() <= {"Sid", "Effect", "Action", "Resource", "Condition"}, statement
            conditions = tuple(_conditions(statement.get("Condition", {})))
            for action in listed(statement["Action"]):
                assert re.fullmatch(r"[a-z0-9-]+:\w+", action), f"{role}: name the action, not {action}"
                for resource in listed(statement["Resource"]):
                    assert resource == EVERYTHING or resource.startswith("arn:"), f"{role}: {resource}"
                    granted.append(Grant(role, action, resource, conditions))
    return granted


def _conditions(condition: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for operator, keys in condition.items():
        assert operator == "StringEquals", f"teach tests/least_privilege/policies.py what {operator} says"
        yield from keys.items()


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
