"""The suggested next steps for a cause of failures. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from slotkeeper.retry.downstream.settings import THROTTLE_ERRORS
from slotkeeper.retry.failures.report import OTHER, Cause, FailureReport

# The failures that the next attempt would have again, because the message itself is at fault.
_SENDER = ("Poison", "InvalidMessage", "TooLarge", "RequestIdReused")
_CREDENTIALS = (
    "CredentialsRefused",
    "AccessDenied",
    "AccessDeniedException",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
)
_THROTTLED = (*THROTTLE_ERRORS, "ProvisionedThroughputExceededException", "RequestLimitExceeded", "NotPermitted")
_STEPS: Mapping[str, str] = {
    "Died": "Raise the worker's memory or timeout if its log shows that it ran out of them",
    "TooSlow": "Raise the worker's timeout, or reduce the work of one message",
    "TooOld": "Find out why the downstream was closed to these requests, or raise max_age_seconds in the retry policy",
    "Cancelled": "None: an operator cancelled them",
    "none": "SQS moved them after too many receives: read the worker's log for what failed before each attempt",
    OTHER[0]: "Choose a shorter period with --since",
}


def next_steps(cause: Cause, report: FailureReport, stack: str) -> tuple[str, ...]:
    """Return what an operator should do: the repair, then the command for the messages in the dead-letter queue."""
    repair = _repair(cause, report, stack)
    if not cause.lost or cause.error_type == "Cancelled":
        return (repair,)
    return (repair, _redrive(cause, report, stack))


def _repair(cause: Cause, report: FailureReport, stack: str) -> str:
    if cause.error_type in _SENDER or set(cause.codes) & set(_SENDER):
        return "Correct the sender: no attempt can perform these messages"
    if cause.error_type in _THROTTLED:
        return "Raise the downstream's limit, or lower the rate: slotkeeper retry limit, or WorkerConcurrency"
    if cause.error_type in _CREDENTIALS:
        return "Renew the worker's credentials or permissions for the downstream"
    if step := _STEPS.get(cause.error_type):
        return step
    opened = [each.downstream for each in report.breakers if each.openings or each.is_open]
    if names := [name for name in opened if name in cause.downstreams]:
        return (
            f"Find out what is wrong with downstream {names[0]}, whose breaker opened: slotkeeper retry breaker show "
            f"{names[0]} --stack {stack}"
        )
    if not cause.example:
        return "Read the worker's log"
    return f"Read the worker's log of the example: slotkeeper request show {shlex.quote(cause.example)} --stack {stack}"


def _redrive(cause: Cause, report: FailureReport, stack: str) -> str:
    """The command that sends the lost messages again: by code if the code has no other messages, otherwise by ids."""
    if cause.error_type in _SENDER:
        return f"List the messages: slotkeeper dlq show work --stack {stack}"
    command, many = f"slotkeeper dlq redrive work --stack {stack}", f"{cause.lost:,} lost"
    if not cause.codes:
        return f"Then redrive the {many}, if they are still in the queue: {command} --code CODE, or --id ID"
    # A queue of which only a part was read may have other messages of the same code.
    all_read = not any("WorkDeadLetterQueue" in part for part in report.reading.left_out)
    if all_read and all(report.codes[code] == number for code, number in cause.codes.items()):
        return f"After the repair: {command} {_options('--code', cause.codes)}"
    if sum(cause.codes.values()) == len(cause.queued) and (all_read or cause.lost == len(cause.queued)):
        return f"After the repair: {command} {_options('--id', cause.queued)}"
    return (
        f"After the repair: {command} {_options('--code', cause.codes)} (it may also send messages of other causes: "
        "see them with --dry-run)"
    )


def _options(name: str, values: Iterable[str]) -> str:
    return " ".join(f"{name} {shlex.quote(value)}" for value in values)
