"""Checks of the retries and of the dead-letter queues."""

from __future__ import annotations

from collections.abc import Iterator

from slotkeeper.next_step import next_step
from slotkeeper.retry.downstream.downstreams import MalformedHealth, NotRead
from slotkeeper.retry.downstream.health import State
from slotkeeper.retry.ledger import WAITING, MalformedRow
from slotkeeper.retry.operations import is_cancelled
from slotkeeper.retry.policy import InvalidPolicy, parse_policy
from slotkeeper_cli.commands.retry import OVERDUE_AFTER
from slotkeeper_cli.dead_letters import DeadLetterQueueName
from slotkeeper_cli.doctor.facts import MAX_ROWS, Facts
from slotkeeper_cli.doctor.health_checks import Finding, HealthCheck, problem, warn
from slotkeeper_cli.formatting import count, duration, seconds
from slotkeeper_cli.retries import line, not_closed, noteworthy

# Seconds. The message of an attempt that died is received again after WorkQueue's visibility timeout, 12 minutes.
STUCK_AFTER = 1800
OPEN_TOO_LONG = 3600  # seconds
_NAMED = 3
_DELETE_ITEM = "use aws dynamodb delete-item; the stack's output DownstreamTableName names the table"


def overdue(facts: Facts) -> Iterator[Finding]:
    late: list[tuple[float, str]] = []
    held: list[tuple[float, str]] = []
    stuck: list[tuple[float, str]] = []
    for name, row in facts.rows.rows:
        if isinstance(row, MalformedRow):
            yield problem(str(row), "correct the row, or delete it if its request has ended")
        elif row.status == WAITING or is_cancelled(row):
            if row.next_attempt_at is not None and facts.now > row.next_attempt_at + OVERDUE_AFTER:
                is_held = not_closed(facts.downstreams, row.downstream)
                (held if is_held else late).append((row.next_attempt_at, name))
        elif facts.now > row.lease_until + STUCK_AFTER:
            stuck.append((row.lease_until, name))
    if late:
        yield problem(
            _should_have_started(late, facts.now),
            "list them with slotkeeper retry list --overdue, and send those that have a schedule with slotkeeper retry "
            "run-now --overdue",
        )
    if held:
        names = ", ".join(one["downstream"] for one in not_closed(facts.downstreams))
        yield warn(
            f"{_should_have_started(held, facts.now)}. Their messages may be held back: the breaker is not closed "
            f"({names})",
            "see when the breaker closes with slotkeeper retry breaker show, and check again after that",
        )
    if stuck:
        since = duration(facts.now - min(stuck)[0])
        yield warn(
            f"{count(len(stuck), 'attempt')} died without a retry, the oldest {since} ago: {_some(stuck)}",
            "see the worker's log, and check that it receives the messages of WorkQueue",
        )
    if not facts.rows.all_of_them:
        yield warn(
            f"only {MAX_ROWS:,} rows of RequestLedgerTable were read", "slotkeeper retry list --overdue reads all"
        )


def _should_have_started(rows: list[tuple[float, str]], now: float) -> str:
    oldest = duration(now - min(rows)[0])
    return f"{count(len(rows), 'retry', 'retries')} should have started, the oldest {oldest} ago: {_some(rows)}"


def _some(late_rows: list[tuple[float, str]]) -> str:
    names = [name for _, name in sorted(late_rows)]
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def retry_policy(facts: Facts) -> Iterator[Finding]:
    if facts.retry_policy is None:
        yield problem(
            "the parameter of the retry policy does not exist: failed attempts are neither retried nor dead-lettered",
            "deploy the stack again, or create the parameter with the value {}, which is the default policy",
        )
        return
    try:
        parse_policy(facts.retry_policy)
    except InvalidPolicy as error:
        yield problem(
            f"the retry policy is invalid: {error}. Failed attempts may be neither retried nor dead-lettered",
            "correct the parameter; {} is the default policy",
        )


def breakers(facts: Facts) -> Iterator[Finding]:
    for error in facts.downstreams.values():
        if isinstance(error, NotRead):
            yield warn(str(error), "show one of them with: slotkeeper retry breaker show NAME")
        elif isinstance(error, MalformedHealth):
            yield problem(f"{error}; until then its messages stay on WorkQueue", _DELETE_ITEM)
    for one in noteworthy(facts.downstreams):
        name, text = one["downstream"], line(one, facts.now)
        if one["forced_open"]:
            yield warn(text, f"close it when the downstream may be called: {next_step('retry breaker close', name)}")
        elif one["state"] != State.CLOSED and one["since"] and facts.now > seconds(one["since"]) + OPEN_TOO_LONG:
            yield problem(text, "repair the downstream; the next probe then closes the breaker")
        elif one["limit_set"] is not None:
            yield warn(text, f"let it adapt again with: {next_step('retry limit', 'auto', downstream=name)}")


def dead_letters(facts: Facts) -> Iterator[Finding]:
    for name in DeadLetterQueueName:
        queue = name.full_name
        messages = int(facts.queues.get(queue, {}).get("ApproximateNumberOfMessages", 0))
        if messages:
            yield warn(
                f"{queue} contains {count(messages, 'message')}",
                f"see the reasons: {next_step('dlq list', name)}. Send them again: {next_step('dlq redrive', name)}",
            )


CHECKS = (
    HealthCheck("retries", "no retry is overdue, and no attempt died without a retry", overdue, flow="worker"),
    HealthCheck("retry-policy", "the retry policy is valid", retry_policy, flow="worker"),
    HealthCheck("breakers", "no breaker is open for long, and no limit is set", breakers, flow="worker"),
    HealthCheck("dead-letters", "the dead-letter queues are empty", dead_letters),
)
