"""Grants of roles and needs of calls, in the terms of IAM.

IAM guide, "Policy evaluation logic" and "IAM JSON policy elements": a call is denied unless a statement allows it. The
roles have no Deny, and `grants` refuses elements that it does not implement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from tests.template.roles.resolved_template import Stack

EVERYTHING = "*"
WORK_POLICY = "work"  # of WorkerRole: the permissions of the work, which users replace


@dataclass(frozen=True)
class Need:
    """One permission that a call or a service needs.

    Args:
        by: the call, or the AWS page on the service's need.
        context: the condition keys of the call.
    """

    action: str
    resource: str
    by: str
    context: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False)


@dataclass(frozen=True)
class Grant:
    """One action on one resource pattern that a role is allowed, if all `conditions` hold."""

    role: str
    action: str
    resource: str
    conditions: tuple[tuple[str, Any], ...] = ()

    def allows(self, need: Need) -> bool:
        return (
            self.action.lower() == need.action.lower()
            and matches(self.resource, need.resource)
            and all(need.context.get(key) in listed(value) for key, value in self.conditions)
        )

    def __str__(self) -> str:
        return f"{self.role}: {self.action} on {self.resource}"


def matches(pattern: str, arn: str) -> bool:
    """IAM guide, "IAM JSON policy elements: Resource": * and ? match characters within a part of an ARN.

    A single * matches everything. No pattern contains a [, which fnmatch would read as a set.
    """
    if pattern == EVERYTHING:
        return True
    ours, theirs = pattern.split(":", 5), arn.split(":", 5)
    return len(ours) == len(theirs) and all(map(fnmatchcase, theirs, ours))


def grants(stack: Stack, role: str, *, of_work: bool = False) -> list[Grant]:
    """Every action on every resource, one grant each.

    Args:
        of_work: return the grants of WORK_POLICY, and otherwise all others.
    """
    properties = stack.properties(role)
    assert not properties.get("ManagedPolicyArns"), f"{role}: a managed policy grants more than the calls need"
    granted = []
    for policy in properties.get("Policies", []):
        if of_work != (role == "WorkerRole" and policy["PolicyName"] == WORK_POLICY):
            continue
        for statement in policy["PolicyDocument"]["Statement"]:
            assert statement["Effect"] == "Allow", statement
            assert statement.keys() <= {"Sid", "Effect", "Action", "Resource", "Condition"}, statement
            conditions = tuple(_conditions(statement.get("Condition", {})))
            for action in listed(statement["Action"]):
                assert re.fullmatch(r"[a-z0-9-]+:\w+", action), f"{role}: {action} must be one action"
                for resource in listed(statement["Resource"]):
                    assert resource == EVERYTHING or resource.startswith("arn:"), f"{role}: {resource}"
                    granted.append(Grant(role, action, resource, conditions))
    return granted


def _conditions(condition: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each key with its permitted values. `ForAllValues` is for a key with a value for each entry of a batch."""
    for operator, keys in condition.items():
        known = ("StringEquals", "ForAllValues:StringEquals")
        assert operator in known, f"{operator}: add it to tests/template/roles/policies.py"
        yield from keys.items()


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
