"""What `slotkeeper status` answers."""

from __future__ import annotations

from tests.cli.operator_account import Operator
from tests.cli.situations import Names, Situation


def _b_and_c_behind_a(operator: Operator) -> Names:
    return {"a": operator.hold("a"), "b": operator.wait("b"), "c": operator.wait("c", priority="high")}


def _disabled(operator: Operator) -> Names:
    operator.event_source = "Disabled"
    return _b_and_c_behind_a(operator)


SITUATIONS = [
    Situation(
        name="two requests wait for the only slot",
        state=_b_and_c_behind_a,
        question="status sample",
        says=(
            "a  RUNNING for 1 min",
            "{a}",
            "first in the queue: c (priority high), waiting for 1 min: 1 of 1 slot in use\n",
            "first in the queue: b, waiting for 1 min: 1 of 1 slot in use; behind the higher priority high: c\n",
        ),
        shows={"processes.0.holders.0.request_id": "a", "processes.0.waiting.1.execution": "{b}"},
    ),
    Situation(
        name="the event source is disabled",
        state=_disabled,
        question="status",
        says=(
            "first in the queue: b, waiting for 1 min: no function receives messages of the queue",
            "RequestQueue: no function receives messages of the queue",
            "-> aws lambda update-event-source-mapping",
        ),
        shows={"event_source.0.state": "Disabled"},
    ),
]
