"""Checks of the alarms, their topic, and the keys that others use to reach the stack."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from slotkeeper_cli.doctor import readings
from slotkeeper_cli.doctor.health_checks import Finding, HealthCheck
from slotkeeper_cli.formatting import count, duration

if TYPE_CHECKING:
    from slotkeeper_cli.account import Account

_NAMED = 5
CLOUDWATCH = "cloudwatch.amazonaws.com"
EVENTBRIDGE = "events.amazonaws.com"
LOG_DELIVERY = "delivery.logs.amazonaws.com"
_ON_SILENCE = "JanitorSilentAlarm"  # the one alarm to which missing data, as in a new stack, is breaching
# Needed to send to an encrypted topic or queue (SNS guide, "Managing Amazon SNS encryption keys and costs"; SQS guide,
# "Amazon SQS Key management").
NEEDED = ("kms:Decrypt", "kms:GenerateDataKey")


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
        what = f"{count(len(names), 'alarm')} without data: {', '.join(names[:_NAMED])}" + ", ..." * (
            len(names) > _NAMED
        )
        why = "Wait for their next periods. If one still has no data, its metric is not published."
        yield Finding("warn", what, why)
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


def topic_key(account: Account, _now: float) -> Iterator[Finding]:
    key = readings.topic_key(account)
    if "alias/aws/" in key:
        yield Finding(
            "bad",
            f"the topic is encrypted with {key}, whose policy does not let alarms publish and cannot be changed",
            "Deploy with a customer managed key (KmsKeyArn), or remove the encryption.",
        )
    elif key and not lets(readings.key_policy(account, key), CLOUDWATCH, NEEDED):
        yield Finding(
            "bad",
            f"the policy of key {key} does not let {CLOUDWATCH} use it, so alarms cannot publish",
            f"Allow {CLOUDWATCH} {' and '.join(NEEDED)}* in the key's policy.",
        )


def status_event_key(account: Account, _now: float) -> Iterator[Finding]:
    """EventBridge sends the status events of workflows to EndingQueue, which is encrypted with the stack's key."""
    key = account.stack.parameters.get("KmsKeyArn", "")
    # EventBridge sends neither account nor rule to KMS, so a statement with a condition does not apply to it (the page
    # on encryption).
    if key and not lets(readings.key_policy(account, key), EVENTBRIDGE, NEEDED, unconditionally=True):
        yield Finding(
            "bad",
            f"the policy of key {key} does not let {EVENTBRIDGE} use it without a condition, so every status event is "
            "dropped",
            "The janitor alone answers callers, publishes ends and frees what aborted workflows held. Allow "
            f"{EVENTBRIDGE} {' and '.join(NEEDED)}* in the key's policy without a condition (docs/encryption.md).",
        )


def workflow_log_key(account: Account, _now: float) -> Iterator[Finding]:
    """The executions of the workflow are encrypted with the stack's key, also what the workflow's log receives."""
    key = account.stack.parameters.get("KmsKeyArn", "")
    if key and not lets(readings.key_policy(account, key), LOG_DELIVERY, ("kms:Decrypt",)):
        yield Finding(
            "bad",
            f"the policy of key {key} does not let {LOG_DELIVERY} use it, so the workflow's log is empty and "
            "GlueRefusalAlarm cannot go off",
            f"Allow {LOG_DELIVERY} kms:Decrypt in the key's policy (docs/encryption.md).",
        )


def lets(policy: Mapping[str, Any], service: str, actions: tuple[str, ...], *, unconditionally: bool = False) -> bool:
    """Whether a key's policy allows a service all of these actions.

    Args:
        unconditionally: ignore what is allowed under a condition. Otherwise conditions are ignored.
    """
    statements = [one for one in _many(policy.get("Statement")) if _names(one.get("Principal"), service)]
    if unconditionally:
        statements = [one for one in statements if one.get("Effect") == "Deny" or not one.get("Condition")]

    def is_stated(effect: str, action: str) -> bool:
        patterns = [p for one in statements if one.get("Effect") == effect for p in _many(one.get("Action"))]
        return any(fnmatchcase(action.lower(), str(pattern).lower()) for pattern in patterns)

    return all(is_stated("Allow", action) and not is_stated("Deny", action) for action in actions)


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
    HealthCheck("alarm-actions", "each alarm has data, and its actions are enabled", silent),
    HealthCheck("topic", "the alarms' topic has a confirmed subscription", topic),
    HealthCheck("topic-key", "CloudWatch may publish to the encrypted topic", topic_key),
    HealthCheck("status-event-key", "EventBridge may send status events to the encrypted queue", status_event_key),
    HealthCheck("workflow-log-key", "the log delivery may read the encrypted executions", workflow_log_key),
)
