"""Checks of flow 3, and of what lies in the queues that nothing works on."""

from __future__ import annotations

from collections.abc import Iterator

from slotkeeper.retry.ledger import WAITING, MalformedRow
from slotkeeper.retry.operations import is_cancelled
from slotkeeper.retry.parameter import InvalidPolicy, parse_policy
from slotkeeper_cli.commands.retry import OVERDUE_AFTER
from slotkeeper_cli.commands.status import END_QUEUES
from slotkeeper_cli.doctor.facts import MAX_ROWS, Facts
from slotkeeper_cli.doctor.health_checks import Finding, HealthCheck, problem, warn
from slotkeeper_cli.formatting import count, duration

# Seconds. The message of an attempt that died is back after WorkQueue's visibility timeout, 12 minutes.
STUCK_AFTER = 1800
_NAMED = 3


def overdue(facts: Facts) -> Iterator[Finding]:
    late, stuck = [], []
    for name, row in facts.rows.rows:
        if isinstance(row, MalformedRow):
            yield problem(str(row), "correct the row, or delete it if its request is done")
        elif row.status == WAITING or is_cancelled(row):
            if row.next_attempt_at is not None and facts.now > row.next_attempt_at + OVERDUE_AFTER:
                late.append((row.next_attempt_at, name))
        elif facts.now > row.lease_until + STUCK_AFTER:
            stuck.append((row.lease_until, name))
    if late:
        since = duration(facts.now - min(late)[0])
        yield problem(
            f"{count(len(late), 'retry', 'retries')} should have started, the oldest {since} ago: {_some(late)}",
            "slotkeeper retry list --overdue; slotkeeper retry run-now --overdue sends those that have a schedule",
        )
    if stuck:
        since = duration(facts.now - min(stuck)[0])
        yield warn(
            f"{count(len(stuck), 'attempt')} died, the first {since} ago, and was not continued: {_some(stuck)}",
            "check that the worker receives WorkQueue's messages, and its log",
        )
    if not facts.rows.all_of_them:
        yield warn(f"only {MAX_ROWS:,} rows of the ledger were read", "slotkeeper retry list --overdue reads all")


def _some(late_rows: list[tuple[float, str]]) -> str:
    names = [name for _, name in sorted(late_rows)]
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def retry_policy(facts: Facts) -> Iterator[Finding]:
    if facts.retry_policy is None:
        yield problem(
            "the retry policy's parameter is gone, and failed attempts wait undecided", "put {} into it, or deploy"
        )
        return
    try:
        parse_policy(facts.retry_policy)
    except InvalidPolicy as error:
        yield problem(
            f"the retry policy is not valid, and failed attempts may wait undecided: {error}",
            "put a valid one; {} will do",
        )


def dead_letters(facts: Facts) -> Iterator[Finding]:
    for queue in END_QUEUES:
        waiting = int(facts.queues.get(queue, {}).get("ApproximateNumberOfMessages", 0))
        if waiting:
            yield warn(
                f"{queue} holds {count(waiting, 'message')}",
                "slotkeeper dlq list shows why; slotkeeper dlq redrive sends them again",
            )


CHECKS = (
    HealthCheck("retries", "no retry is overdue, and no attempt is stuck", overdue, flow="worker"),
    HealthCheck("retry-policy", "the retry policy is valid", retry_policy, flow="worker"),
    HealthCheck("dead-letters", "the dead-letter queues are empty", dead_letters),
)
