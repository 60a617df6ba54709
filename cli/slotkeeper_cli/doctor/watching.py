"""Checks of who is woken: alarms, their topic, and the key that it is encrypted with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from slotkeeper_cli.doctor.facts import Facts
from slotkeeper_cli.doctor.findings import Check, Finding, problem, warn
from slotkeeper_cli.words import count, duration

CLOUDWATCH = "cloudwatch.amazonaws.com"
_ON_SILENCE = "JanitorSilentAlarm"  # the one alarm that missing data rings, which a new stack has of every metric
# To publish to an encrypted topic (SNS guide, "Managing Amazon SNS encryption keys and costs").
NEEDED = ("kms:Decrypt", "kms:GenerateDataKey")


def alarms(facts: Facts) -> Iterator[Finding]:
    for one in sorted(facts.alarms, key=lambda alarm: str(alarm["LogicalId"])):
        name = one["LogicalId"]
        if one["StateValue"] == "ALARM" and name == _ON_SILENCE and facts.stack_age < one.get("Period", 3600):
            yield warn(
                f"{name} is in ALARM, and the stack is {duration(facts.stack_age)} old: it may ring before the "
                "janitor's first run is counted",
                f"look again an hour after the deployment; if it still rings, see docs/runbooks.md#{name.lower()}",
            )
        elif one["StateValue"] == "ALARM":
            yield problem(f"{name} is in ALARM: {one.get('StateReason', '')}", f"docs/runbooks.md#{name.lower()}")
    silent = sorted(str(one["LogicalId"]) for one in facts.alarms if one["StateValue"] == "INSUFFICIENT_DATA")
    if silent:
        yield warn(
            f"{count(len(silent), 'alarm')} without data: {', '.join(silent)}",
            "wait for its next period; if it stays so, its metric is not emitted",
        )


def silenced(facts: Facts) -> Iterator[Finding]:
    off = sorted(str(one["LogicalId"]) for one in facts.alarms if not one.get("ActionsEnabled", True))
    if off:
        yield problem(
            f"alarms wake nobody, their actions are switched off: {', '.join(off)}",
            "aws cloudwatch enable-alarm-actions",
        )


def topic(facts: Facts) -> Iterator[Finding]:
    found = facts.subscriptions
    confirmed = [one for one in found if one.get("SubscriptionArn", "").startswith("arn:")]
    pending = [one.get("Endpoint", "?") for one in found if one not in confirmed]
    if pending:
        yield warn(f"not confirmed yet: {', '.join(pending)}", "follow the link in the mail that SNS has sent there")
    if not confirmed:
        yield warn(
            "nobody hears of alarms", "deploy with AlarmEmail, or subscribe to the topic (output FailureTopicArn)"
        )


def topic_key(facts: Facts) -> Iterator[Finding]:
    key = facts.topic.get("KmsMasterKeyId", "")
    if not key:
        return
    if "alias/aws/" in key:
        yield problem(
            f"the topic is encrypted with {key}, by which alarms cannot publish, and nobody can change that",
            "take the encryption away, or deploy with a key of your own (KmsKeyArn)",
        )
    elif not lets(facts.topic_key_policy, CLOUDWATCH, NEEDED):
        yield problem(
            f"the policy of key {key} does not let {CLOUDWATCH} use it: alarms ring, and nobody hears of it",
            f"allow it {' and '.join(NEEDED)}* in the key's policy",
        )


def lets(policy: Mapping[str, Any], service: str, actions: tuple[str, ...]) -> bool:
    """Whether a key's policy lets a service do all of this. Conditions are taken to hold."""
    statements = [one for one in _many(policy.get("Statement")) if _names(one.get("Principal"), service)]

    def is_said(effect: str, action: str) -> bool:
        patterns = [p for one in statements if one.get("Effect") == effect for p in _many(one.get("Action"))]
        return any(fnmatchcase(action.lower(), str(pattern).lower()) for pattern in patterns)

    return all(is_said("Allow", action) and not is_said("Deny", action) for action in actions)


def _names(principal: Any, service: str) -> bool:
    if isinstance(principal, str):
        return principal == "*"
    return isinstance(principal, Mapping) and service in _many(principal.get("Service"))


def _many(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


CHECKS = (
    Check("alarms", "no alarm rings", alarms),
    Check("alarm-actions", "alarms may wake somebody", silenced),
    Check("topic", "somebody is subscribed to the alarms' topic", topic),
    Check("topic-key", "CloudWatch may publish to the encrypted topic", topic_key),
)
