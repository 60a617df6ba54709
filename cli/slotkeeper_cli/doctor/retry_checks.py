"""Checks of the retries and of the dead-letter queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from slotkeeper.next_step import ToFillIn, next_step
from slotkeeper.retry.downstream.downstreams import MalformedHealth, NotRead
from slotkeeper.retry.downstream.health import State
from slotkeeper.retry.ledger import FAILED, RUNNING, WAITING, MalformedRow, Row
from slotkeeper_cli.dead_letters import DeadLetterQueueName
from slotkeeper_cli.doctor.health_checks import Finding, HealthCheck
from slotkeeper_cli.doctor.readings import reading
from slotkeeper_cli.formatting import count, seconds
from slotkeeper_cli.retries import (
    RetryControl,
    is_awaited,
    lateness,
    not_closed,
    noteworthy,
    policy_text,
    usable_policy,
)
from slotkeeper_cli.stack_connection import message_counts

if TYPE_CHECKING:
    from slotkeeper_cli.account import Account

# Seconds. The message of an attempt that died is received again after WorkQueue's visibility timeout, 12 minutes.
STUCK_AFTER = 1800
OPEN_TOO_LONG = 3600  # seconds
MAX_ROWS = 200_000  # rows of the ledger that are read
_NAMED = 3
_CONTENTS = {
    DeadLetterQueueName.REQUEST: "They are no requests, or SQS moved them: none of them is queued.",
    DeadLetterQueueName.WORK: "The worker gave this work up.",
    DeadLetterQueueName.SCHEDULE: "EventBridge Scheduler could not send these attempts to WorkQueue.",
}


@reading
def ledger_rows(account: Account) -> tuple[Sequence[tuple[str, Row | MalformedRow]], bool]:
    """The rows of the worker's requests that have not ended, and whether all rows of the ledger were read."""
    page_sizes: list[int] = []
    rows: list[tuple[str, Row | MalformedRow]] = []
    for row in RetryControl(account.stack).ledger.rows((RUNNING, FAILED, WAITING), page_sizes.append):
        rows.append(row)
        if sum(page_sizes) >= MAX_ROWS:
            return rows, False
    return rows, True


@reading
def retry_policy(account: Account) -> str | None:
    """The value of the retry policy's parameter; None if there is no such parameter."""
    return policy_text(account.stack)


def overdue(account: Account, now: float) -> Iterator[Finding]:
    rows, is_whole = ledger_rows(account)
    downstreams = account.downstreams()
    late: list[tuple[float, str]] = []
    held: list[tuple[float, str]] = []
    stuck: list[tuple[float, str]] = []
    for name, row in rows:
        if isinstance(row, MalformedRow):
            yield Finding("bad", str(row), "Correct the row, or delete it if its request has ended.")
        elif is_awaited(row):
            if after := lateness(row, now):
                (held if not_closed(downstreams, row.downstream) else late).append((now - after, name))
        elif now > row.lease_until + STUCK_AFTER:
            stuck.append((row.lease_until, name))
    if late:
        why = f"{_some(late)}. Send those that have a schedule with: slotkeeper retry run-now --overdue"
        what = f"{count(len(late), 'retry', 'retries')} should have started"
        yield Finding("bad", what, why, "slotkeeper retry list --overdue", since=min(late)[0])
    if held:
        names = ", ".join(one["downstream"] for one in not_closed(downstreams))
        what = f"{count(len(held), 'retry', 'retries')} should have started, and may be held back"
        why = f"{_some(held)}. The breaker is not closed ({names})."
        yield Finding("warn", what, why, "slotkeeper retry breaker show", since=min(held)[0])
    if stuck:
        what = f"{count(len(stuck), 'attempt')} died without a retry: {_some(stuck)}"
        why = "See the worker's log, and check that it receives the messages of WorkQueue."
        yield Finding("warn", what, why, "slotkeeper doctor --only event-sources", since=min(stuck)[0])
    if not is_whole:
        what = f"only {MAX_ROWS:,} rows of RequestLedgerTable were read"
        yield Finding("warn", what, command="slotkeeper retry list --overdue")


def _some(late_rows: list[tuple[float, str]]) -> str:
    names = [name for _, name in sorted(late_rows)]
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def policy(account: Account, _now: float) -> Iterator[Finding]:
    _, problem = usable_policy(retry_policy(account))
    if problem:
        lost = "Failed attempts may be neither retried nor dead-lettered."
        yield Finding("bad", problem, f"{lost} Correct or create the parameter; {{}} is the default policy.")


def breakers(account: Account, now: float) -> Iterator[Finding]:
    downstreams = account.downstreams()
    for error in downstreams.values():
        if isinstance(error, NotRead):
            yield Finding("warn", str(error), command="slotkeeper retry breaker show")
        elif isinstance(error, MalformedHealth):
            delete = "Use aws dynamodb delete-item; the stack's output DownstreamTableName names the table."
            yield Finding("bad", f"{error}; until then its messages stay on WorkQueue", delete)
    for one in noteworthy(downstreams):
        name, is_forced = one["downstream"], one["forced_open"]
        if one["state"] == State.CLOSED:
            what = f"downstream {name}: an operator has set the limit to {count(one['limit_set'], 'caller')}"
            yield Finding("warn", what, "", next_step("retry limit", "auto", downstream=name))
            continue
        since = seconds(one["since"]) if one["since"] else None
        is_long = not is_forced and since is not None and now > since + OPEN_TOO_LONG
        by = f", by {one['by']}" if one["by"] else ""
        until = "it is closed" if is_forced else "a probe succeeds"
        yield Finding(
            "bad" if is_long else "warn",
            f"downstream {name}: the breaker is {'half open' if one['state'] == State.HALF_OPEN else 'open'}",
            f"{one['why'] or 'Its calls failed'}{by}. Messages are held back until {until}.",
            next_step("retry breaker close", name, why=ToFillIn("TEXT"))
            if is_forced
            else next_step("retry breaker show", name),
            since=since,
        )


def dead_letters(account: Account, _now: float) -> Iterator[Finding]:
    queues = account.queues()
    for name in DeadLetterQueueName:
        # Hidden ones too: only an operator's command receives them.
        if messages := sum(message_counts(queues.get(name.full_name, {})).values()):
            what = f"{name.full_name} has {count(messages, 'message')}"
            yield Finding("warn", what, _CONTENTS[name], next_step("dlq list", name))


CHECKS = (
    HealthCheck("breakers", "no breaker is open, and no limit is set", breakers, flow="worker", is_urgent=True),
    HealthCheck("dead-letters", "the dead-letter queues are empty", dead_letters, is_urgent=True),
    HealthCheck("retries", "no retry is overdue, and no attempt died without a retry", overdue, flow="worker"),
    HealthCheck("retry-policy", "the retry policy is valid", policy, flow="worker"),
)
