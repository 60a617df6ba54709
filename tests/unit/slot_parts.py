"""The parts of the flow of slots over a test's clients, as the functions put them together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slotkeeper.events import CompletionEvents
from slotkeeper.slots.callers import Callers
from slotkeeper.slots.dispatch import Report, Tools, dispatch
from slotkeeper.slots.doorbell import Bell, Doorbell
from slotkeeper.slots.ending_queue import EndingQueue
from slotkeeper.slots.endings import Endings, Retention
from slotkeeper.slots.grants import Grants
from slotkeeper.slots.notices import FailureNotices
from slotkeeper.slots.outcomes import Outcomes
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.request_events import RequestEvents
from slotkeeper.slots.request_table import RequestTable
from slotkeeper.slots.returns import Requeues
from slotkeeper.slots.rows import RequestRow, RequestRows
from slotkeeper.slots.starts import ReservationStarter, Starts
from slotkeeper.slots.targets import execution_arn

NOW = 1_800_000_000.0
RETENTION = Retention(succeeded=30 * 86400, failed=90 * 86400)


class SlotParts:
    """Nothing sleeps: `slept` has the seconds.

    Attributes:
        left: seconds until the end of the invocation.
        published: the rows whose ends were published.
        counted: the metrics of the sender of ends.
        unsent: the completion events that could not be sent.
    """

    def __init__(self, clients: Mapping[str, Any], workflow_arn: str, dispatch_url: str, ending_url: str, topic: str):
        self.dynamodb, self.sqs, self.stepfunctions = (clients[name] for name in ("dynamodb", "sqs", "stepfunctions"))
        self.events, self.sns = clients["events"], clients["sns"]
        self.workflow_arn = workflow_arn
        self.now = NOW
        self.left = float("inf")
        self.slept: list[float] = []
        self.slots = Slots(self.dynamodb, "slots")
        self.processes = Processes(self.dynamodb, "slots", lambda: self.now)
        self.grants = Grants(self.dynamodb, "slots")
        self.requests = RequestTable(self.dynamodb, "requests", "slots")
        self.rows = RequestRows(self.dynamodb, "requests")
        self.requeues = Requeues(self.dynamodb, "requests", "slots", RETENTION.succeeded)
        self.outcomes = Outcomes(self.dynamodb, "requests")
        self.doorbell = Doorbell(self.sqs, dispatch_url)
        self.starts = Starts(self.stepfunctions, workflow_arn)
        self.starter = ReservationStarter(self.starts, self.grants, self.requests, lambda: self.now, each=_in_turn)
        self.tools = Tools(
            self.grants,
            self.requests,
            self.starter,
            self.doorbell,
            clock=lambda: self.now,
            sleep=self.slept.append,
            jitter=lambda _, high: high,
            seconds_left=lambda: self.left,
        )
        self.published: list[RequestRow] = []
        self.counted: list[str] = []
        self.unsent: list[str] = []
        events = CompletionEvents(
            self.events, "default", "slotkeeper", on_unsent=self.unsent.append, clock=lambda: self.now
        )
        self.endings = Endings(
            self.dynamodb,
            "requests",
            Callers(self.stepfunctions),
            RequestEvents(events, "requests", "dead.fifo"),
            FailureNotices(self.sns, topic),
            RETENTION,
            self.execution_arn,
            lambda: self.now,
            self.published.append,
            self.counted.append,
        )
        self.ending_queue = EndingQueue(self.sqs, ending_url)

    def execution_arn(self, execution: str) -> str:
        return execution_arn(self.workflow_arn, execution)

    def dispatch(self, process: str = "p", at: float | None = None, passed: Any = None, **more: Any) -> Report:
        return dispatch(self.tools, Bell(process, at, passed=passed), **more)

    def record(self, execution: str, outcome: str, at: float | None = None, **more: str) -> bool:
        """Record an outcome of a request of `p`. `more`: the answer of a success, code and cause of a failure."""
        now = self.now if at is None else at
        if outcome == "SUCCEEDED":
            return self.outcomes.succeeded("p", execution, now, **more)
        return self.outcomes.failed("p", execution, now, **{"code": "Error", "cause": "why"} | more)


def _in_turn[T, R](work: Callable[[T], R], listed: Sequence[T]) -> list[R]:
    return [work(each) for each in listed]
