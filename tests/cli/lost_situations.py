"""What the command answers about a request whose message is gone."""

from __future__ import annotations

from slotkeeper.slots.process import SETTLED_SECONDS
from tests.cli.operator_account import Operator
from tests.cli.refused_requests import NOW
from tests.cli.situations import Names, Situation


def _b_is_lost(operator: Operator) -> Names:
    operator.hold("a")
    b = operator.wait("b", priority="high")
    process, noted = operator.process(), NOW - SETTLED_SECONDS
    operator.slots.lost.lose(process, process.waiting["high"], noted)
    operator.slots.lost.mark_reported("sample", b, NOW)
    return {"b": b}


SITUATIONS = [
    Situation(
        name="the message of a waiting request was deleted",
        state=_b_is_lost,
        question="doctor --only lost",
        says=(
            "process sample: the message of b, sent at",
            "no longer exists, and it was not started",
            "slotkeeper request submit --process sample --request-id b --priority high",
        ),
        exit_code=5,
    ),
]
