"""What `slotkeeper process remove` asks and answers."""

from __future__ import annotations

from tests.cli.operator_account import Operator
from tests.cli.refused_requests import wait_first
from tests.cli.situations import Situation


def _held_and_queued(operator: Operator) -> None:
    """One request holds the slot, the heads of two priorities wait, and another request is behind them."""
    operator.hold("a")
    operator.wait("b")
    operator.wait("c", priority="high")
    operator.send("d")


def _head_waits(operator: Operator) -> None:
    wait_first(operator)


SITUATIONS = [
    Situation(
        name="a process with a holder and waiting requests: the question",
        state=_held_and_queued,
        question="process remove sample",
        says=(
            "Remove process sample? It is paused first, and removed when its 1 holder (1 slot) ended, for which the "
            "command waits 1 h at most. 2 requests are registered as next, and RequestQueue has about 4 messages of "
            "all processes: those of sample are dead-lettered as UnknownProcess.",
            "give --yes to confirm. Nothing was changed.",
        ),
        exit_code=3,
    ),
    Situation(
        name="a process was removed: how to run its requests",
        state=_head_waits,
        question="process remove sample --yes",
        says=(
            "Its queued requests go to RequestDeadLetterQueue as UnknownProcess. To run them:",
            "slotkeeper process add sample --limit 0 --target sample-job",
            "slotkeeper dlq redrive request --code UnknownProcess",
        ),
    ),
]
