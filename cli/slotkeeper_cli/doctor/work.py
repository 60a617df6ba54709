"""Checks of flow 3, and of what lies in the queues that nothing works on."""

from __future__ import annotations

from collections.abc import Iterator

from slotkeeper.retry.ledger import WAITING, MalformedRow
from slotkeeper.retry.operations import is_cancelled
from slotkeeper.retry.parameter import InvalidPolicy, parse_policy
from slotkeeper_cli.commands.retry import OVERDUE_AFTER
from slotkeeper_cli.commands.status import END_QUEUES
from slotkeeper_cli.doctor.facts import MOST_ROWS, Facts
from slotkeeper_cli.doctor.findings import Check, Finding, problem, warn
from slotkeeper_cli.words import count, duration

# Seconds. The message of an attempt that died is back after WorkQueue's visibility timeout, 12 minutes.
STUCK_AFTER = 1800
_NAMED = 3


def overdue(facts: Facts) -> Iterator[Finding]:
    late, stuck = [], []
    for name, row in facts.rows.found:
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
            f"{count(len(late), 'retry', 'retries')} should have begun, the oldest {since} ago: {_some(late)}",
            "slotkeeper retry list --overdue; slotkeeper retry run-now --overdue brings those that have a schedule",
        )
    if stuck:
        since = duration(facts.now - min(stuck)[0])
        yield warn(
            f"{count(len(stuck), 'attempt')} died, the first {since} ago, and nobody took it up: {_some(stuck)}",
            "see whether the worker gets WorkQueue's messages, and what its log says",
        )
    if not facts.rows.all_of_them:
        yield warn(
            f"only {MOST_ROWS:,} rows of the ledger were looked at", "slotkeeper retry list --overdue looks at all"
        )


def _some(found: list[tuple[float, str]]) -> str:
    names = [name for _, name in sorted(found)]
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
                f"{queue} holds {count(waiting, 'message')}", "slotkeeper dlq list says why, and dlq redrive sends"
            )


CHECKS = (
    Check("retries", "no retry is overdue, and no attempt is stuck", overdue, flow="worker"),
    Check("retry-policy", "the retry policy is valid", retry_policy, flow="worker"),
    Check("dead-letters", "nothing lies in the queues that nobody works on", dead_letters),
)
