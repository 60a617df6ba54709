"""Checks of the alarms, their topic, and the keys that others use to reach the stack."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from slotkeeper_cli.doctor import readings
from slotkeeper_cli.doctor.health_checks import Finding, HealthCheck
from slotkeeper_cli.formatting import count, duration

if TYPE_CHECKING:
    from slotkeeper_cli.account import Account

_NAMED = 5
_ON_SILENCE = "JanitorSilentAlarm"  # the one alarm to which missing data, as in a new stack, is breaching
# Needed to send to an encrypted topic or queue (SNS guide, "Managing Amazon SNS encryption keys and costs"; SQS guide,
# "Amazon SQS Key management").
SEND = ("kms:Decrypt", "kms:GenerateDataKey")


@dataclass(frozen=True)
class KeyUser:
    """A service that must be allowed to use the stack's key (docs/encryption.md).

    Attributes:
        otherwise: what happens if it is not.
        unconditionally: whether a statement with a condition does not apply to it.
    """

    service: str
    actions: tuple[str, ...]
    otherwise: str
    unconditionally: bool = False


_ALARMS = KeyUser("cloudwatch.amazonaws.com", SEND, "Alarms cannot publish.")
_OF_STACK = (
    # EventBridge sends neither account nor rule to KMS, so a statement with a condition does not apply to it.
    KeyUser(
        "events.amazonaws.com",
        SEND,
        "Every status event is dropped: the janitor alone answers callers, publishes ends and frees what aborted "
        "workflows held.",
        unconditionally=True,
    ),
    KeyUser(
        "delivery.logs.amazonaws.com",
        ("kms:Decrypt",),
        "The workflow's log is empty, and GlueRefusalAlarm cannot go off.",
    ),
)


def first_step(alarm: Mapping[str, Any]) -> tuple[str, str | None]:
    """What to do first, and the command in it if it is one.

    The template's descriptions end with the first step and the address of the runbook.
    """
    name = str(alarm["LogicalId"])
    text = str(alarm.get("AlarmDescription", "")).partition("First step: ")[2]
    _, _, after = text.partition("`slotkeeper ")
    return text or f"see docs/runbooks.md#{name.lower()}", f"slotkeeper {after.partition('`')[0]}" if after else None


def ringing(account: Account, now: float) -> Iterator[Finding]:
    for one in sorted(account.alarms(), key=lambda alarm: str(alarm["LogicalId"])):
        if one["StateValue"] != "ALARM":
            continue
        name, (step, command), since = one["LogicalId"], first_step(one), one.get("StateUpdatedTimestamp")
        age = now - account.stack.description["CreationTime"].timestamp() if name == _ON_SILENCE else math.inf
        is_new = age < one.get("Period", 3600)
        why = (
            f"The stack is only {duration(age)} old, so the alarm may not have data of the janitor's first run yet."
            if is_new
            else f"{one.get('StateReason', '')} First step: {step}".strip()
        )
        at = since.timestamp() if since else None
        yield Finding("warn" if is_new else "bad", f"{name} is in ALARM", why, command, since=at)


def silent(account: Account, _now: float) -> Iterator[Finding]:
    names = sorted(str(one["LogicalId"]) for one in account.alarms() if one["StateValue"] == "INSUFFICIENT_DATA")
    if names:
        more = ", ..." * (len(names) > _NAMED)
        what = f"{count(len(names), 'alarm')} without data: {', '.join(names[:_NAMED])}{more}"
        why = "Wait for their next periods. If one still has no data, its metric is not published."
        yield Finding("warn", what, why)


def actions(account: Account, _now: float) -> Iterator[Finding]:
    off = sorted(str(one["LogicalId"]) for one in account.alarms() if not one.get("ActionsEnabled", True))
    if off:
        what = f"the actions of alarms are disabled: {', '.join(off)}"
        yield Finding("bad", what, "Enable them with aws cloudwatch enable-alarm-actions.")


def topic(account: Account, _now: float) -> Iterator[Finding]:
    subscriptions = readings.subscriptions(account)
    confirmed = [one for one in subscriptions if one.get("SubscriptionArn", "").startswith("arn:")]
    pending = [one.get("Endpoint", "?") for one in subscriptions if one not in confirmed]
    if pending:
        what = f"subscription not confirmed yet: {', '.join(pending)}"
        yield Finding("warn", what, "Follow the link in the e-mail from SNS.")
    if not confirmed:
        how = "Deploy with AlarmEmail, or subscribe to the topic (output FailureTopicArn)."
        yield Finding("warn", "the alarms' topic has no confirmed subscription", how)


def keys(account: Account, _now: float) -> Iterator[Finding]:
    of_topic, of_stack = readings.topic_key(account), account.stack.parameters.get("KmsKeyArn", "")
    if "alias/aws/" in of_topic:
        what = f"the topic is encrypted with {of_topic}, whose policy does not let alarms publish and cannot be changed"
        yield Finding("bad", what, "Deploy with a customer managed key (KmsKeyArn), or remove the encryption.")
        of_topic = ""
    for key, user in ((of_topic, _ALARMS), *((of_stack, user) for user in _OF_STACK)):
        if key and not lets(readings.key_policy(account, key), user):
            condition = " without a condition" * user.unconditionally
            yield Finding(
                "bad",
                f"the policy of key {key} does not let {user.service} use it{condition}",
                f"{user.otherwise} Allow {user.service} {' and '.join(user.actions)} in the key's policy{condition} "
                "(docs/encryption.md).",
            )


def lets(policy: Mapping[str, Any], user: KeyUser) -> bool:
    """Whether a key's policy allows a service all actions. Conditions are ignored unless none may apply to it."""
    statements = [one for one in _many(policy.get("Statement")) if _names(one.get("Principal"), user.service)]
    if user.unconditionally:
        statements = [one for one in statements if one.get("Effect") == "Deny" or not one.get("Condition")]

    def is_stated(effect: str, action: str) -> bool:
        patterns = [p for one in statements if one.get("Effect") == effect for p in _many(one.get("Action"))]
        return any(fnmatchcase(action.lower(), str(pattern).lower()) for pattern in patterns)

    return all(is_stated("Allow", action) and not is_stated("Deny", action) for action in user.actions)


def _names(principal: Any, service: str) -> bool:
    if isinstance(principal, str):
        return principal == "*"
    return isinstance(principal, Mapping) and service in _many(principal.get("Service"))


def _many(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


CHECKS = (
    HealthCheck("alarms", "no alarm is in ALARM", ringing, is_urgent=True),
    HealthCheck("alarm-data", "each alarm has data", silent),
    HealthCheck("alarm-actions", "the actions of alarms are enabled", actions),
    HealthCheck("topic", "the alarms' topic has a confirmed subscription", topic),
    HealthCheck("keys", "each service that needs the keys of topic and stack may use them", keys),
)
