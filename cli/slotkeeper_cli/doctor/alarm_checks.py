"""Checks of the alarms, their topic, and the key that encrypts the topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from slotkeeper_cli.doctor.facts import Facts, first_step
from slotkeeper_cli.doctor.health_checks import Finding, HealthCheck, problem, warn
from slotkeeper_cli.formatting import count, duration

_NAMED = 5
CLOUDWATCH = "cloudwatch.amazonaws.com"
EVENTBRIDGE = "events.amazonaws.com"
LOG_DELIVERY = "delivery.logs.amazonaws.com"
_ON_SILENCE = "JanitorSilentAlarm"  # the one alarm to which missing data, as in a new stack, is breaching
# Needed to send to an encrypted topic or queue (SNS guide, "Managing Amazon SNS encryption keys and costs"; SQS guide,
# "Amazon SQS Key management").
NEEDED = ("kms:Decrypt", "kms:GenerateDataKey")


def alarms(facts: Facts) -> Iterator[Finding]:
    for one in sorted(facts.alarms, key=lambda alarm: str(alarm["LogicalId"])):
        name = one["LogicalId"]
        if one["StateValue"] == "ALARM" and name == _ON_SILENCE and facts.stack_age < one.get("Period", 3600):
            yield warn(
                f"{name} is in ALARM, but the stack is only {duration(facts.stack_age)} old: the alarm may not "
                "have data of the janitor's first run yet",
                "run this again an hour after the deployment; if it is still in ALARM, see "
                f"docs/runbooks.md#{name.lower()}",
            )
        elif one["StateValue"] == "ALARM":
            do = first_step(one) or f"see docs/runbooks.md#{name.lower()}"
            yield problem(f"{name} is in ALARM: {one.get('StateReason', '')}", do)
    silent = sorted(str(one["LogicalId"]) for one in facts.alarms if one["StateValue"] == "INSUFFICIENT_DATA")
    if silent:
        names = ", ".join(silent[:_NAMED]) + (", ..." if len(silent) > _NAMED else "")
        yield warn(
            f"{count(len(silent), 'alarm')} without data: {names}",
            "wait for the alarms' next periods; if one still has no data, its metric is not published",
        )


def silenced(facts: Facts) -> Iterator[Finding]:
    off = sorted(str(one["LogicalId"]) for one in facts.alarms if not one.get("ActionsEnabled", True))
    if off:
        yield problem(
            f"the actions of alarms are disabled: {', '.join(off)}",
            "enable them with aws cloudwatch enable-alarm-actions",
        )


def topic(facts: Facts) -> Iterator[Finding]:
    subscriptions = facts.subscriptions
    confirmed = [one for one in subscriptions if one.get("SubscriptionArn", "").startswith("arn:")]
    pending = [one.get("Endpoint", "?") for one in subscriptions if one not in confirmed]
    if pending:
        yield warn(f"subscription not confirmed yet: {', '.join(pending)}", "follow the link in the e-mail from SNS")
    if not confirmed:
        yield warn(
            "the alarms' topic has no confirmed subscription",
            "deploy with AlarmEmail, or subscribe to the topic (output FailureTopicArn)",
        )


def topic_key(facts: Facts) -> Iterator[Finding]:
    key = facts.topic.get("KmsMasterKeyId", "")
    if not key:
        return
    if "alias/aws/" in key:
        yield problem(
            f"the topic is encrypted with {key}, whose policy does not let alarms publish and cannot be changed",
            "deploy with a customer managed key (KmsKeyArn), or remove the encryption",
        )
    elif not lets(facts.key_policy(key), CLOUDWATCH, NEEDED):
        yield problem(
            f"the policy of key {key} does not let {CLOUDWATCH} use it, so alarms cannot publish",
            f"allow {CLOUDWATCH} {' and '.join(NEEDED)}* in the key's policy",
        )


def status_event_key(facts: Facts) -> Iterator[Finding]:
    """EventBridge sends the status events of workflows to EndingQueue, which is encrypted with the stack's key."""
    key = facts.key
    # EventBridge sends neither account nor rule to KMS, so a statement with a condition does not apply to it (the page
    # on encryption).
    if key and not lets(facts.key_policy(key), EVENTBRIDGE, NEEDED, unconditionally=True):
        yield problem(
            f"the policy of key {key} does not let {EVENTBRIDGE} use it without a condition, so every status event is "
            "dropped: the janitor alone answers callers, publishes ends and frees what aborted workflows held",
            f"allow {EVENTBRIDGE} {' and '.join(NEEDED)}* in the key's policy without a condition (docs/encryption.md)",
        )


def workflow_log_key(facts: Facts) -> Iterator[Finding]:
    """The executions of the workflow are encrypted with the stack's key, also what the workflow's log receives."""
    key = facts.key
    if key and not lets(facts.key_policy(key), LOG_DELIVERY, ("kms:Decrypt",)):
        yield problem(
            f"the policy of key {key} does not let {LOG_DELIVERY} use it, so the workflow's log is empty and "
            "GlueRefusalAlarm cannot go off",
            f"allow {LOG_DELIVERY} kms:Decrypt in the key's policy (docs/encryption.md)",
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
    HealthCheck("alarms", "no alarm is in ALARM", alarms),
    HealthCheck("alarm-actions", "the actions of alarms are enabled", silenced),
    HealthCheck("topic", "the alarms' topic has a confirmed subscription", topic),
    HealthCheck("topic-key", "CloudWatch may publish to the encrypted topic", topic_key),
    HealthCheck("status-event-key", "EventBridge may send status events to the encrypted queue", status_event_key),
    HealthCheck("workflow-log-key", "the log delivery may read the encrypted executions", workflow_log_key),
)
