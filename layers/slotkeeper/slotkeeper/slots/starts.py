"""Starts the workflows of the requests that a grant has reserved slots for, and settles each reservation.

Each start is one try, so that its answer has one meaning:

- started: the start is marked in the request's row, and its workflow confirms the slot.
- not started: the reservation is put back, and the request stays queued.
- refused for good: the request ends, and its reservation with it, in one transaction.
- uncertain: the reservation stays. It is started again by name once no invocation can still be starting it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, EndpointConnectionError

from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots.request_table import Leaving, QueuedBody, RequestTable, granted_as

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

    from slotkeeper.slots.grants import Grants

# Step Functions does not accept the request's content, and never will (API Reference, StartExecution, Errors).
_REFUSED = {"InvalidExecutionInput", "InvalidName"}
# It has started nothing because of its load, a permission, a quota or a missing state machine (as above).
_NOT_STARTED = {
    "AccessDeniedException",
    "ExecutionLimitExceeded",
    "InvalidArn",
    "KmsAccessDeniedException",
    "KmsInvalidStateException",
    "KmsThrottlingException",
    "StateMachineDeleting",
    "StateMachineDoesNotExist",
    "ThrottlingException",
    "ValidationException",
}


@dataclass(frozen=True)
class Running:
    """The execution runs: this call, or an earlier one of the same name and input, started it."""


@dataclass(frozen=True)
class NotStarted:
    """Nothing was started, and a later try may succeed."""

    reason: str


@dataclass(frozen=True)
class StartRefused:
    """Nothing was started, and no later try can succeed."""

    reason: str


@dataclass(frozen=True)
class OtherExecution:
    """An execution of this name exists: it has closed, or has another input.

    `since`: when it began, in seconds since the epoch; None if Step Functions does not show it yet.
    """

    since: float | None


@dataclass(frozen=True)
class Unsure:
    """The execution may have started: there was no answer, or none that decides."""

    reason: str


StartOutcome = Running | NotStarted | StartRefused | OtherExecution | Unsure


class Starts:
    """The state machine that runs a request's work.

    Args:
        stepfunctions: a client whose calls take at most five seconds, with one attempt. After a retry, a refusal would
            not show whether the try before it, whose answer was lost, has started the execution.
    """

    def __init__(self, stepfunctions: SFNClient, state_machine_arn: str) -> None:
        self._stepfunctions = stepfunctions
        self._arn = state_machine_arn

    def start(self, name: str, text: str) -> StartOutcome:
        """Start an execution with this input. The same name and input start it once, however often this is called.

        Source: Step Functions API Reference, StartExecution: it is idempotent while the execution is open.
        """
        try:
            self._stepfunctions.start_execution(stateMachineArn=self._arn, name=name, input=text)
        except (ConnectTimeoutError, EndpointConnectionError) as error:  # it was never sent
            return NotStarted(str(error))
        except ClientError as error:
            code = error.response["Error"]["Code"]
            reason = f"{code}: {error.response['Error'].get('Message', '')}"
            if code == "ExecutionAlreadyExists":
                return OtherExecution(self._began(name))
            if code in _REFUSED:
                return StartRefused(reason)
            return NotStarted(reason) if code in _NOT_STARTED else Unsure(reason)
        except BotoCoreError as error:
            return Unsure(str(error))
        return Running()

    def _began(self, name: str) -> float | None:
        arn = f"{self._arn.replace(':stateMachine:', ':execution:', 1)}:{name}"
        try:
            return self._stepfunctions.describe_execution(executionArn=arn)["startDate"].timestamp()
        except (ClientError, BotoCoreError):
            return None


# Calls at the same time.
AT_THE_SAME_TIME = 8
# Seconds after a grant in which its requests are started. A call takes at most five, so a reservation
# that is older than AGE_SECONDS is not being started any more, however long the invocation of its grant may last.
LATEST_START_SECONDS = 25
AGE_SECONDS = 32


def in_threads[T, R](work: Callable[[T], R], listed: Sequence[T]) -> list[R]:
    """Call `work` for each element, some at the same time; the results in the order of the elements."""
    if not listed:
        return []
    with ThreadPoolExecutor(min(AT_THE_SAME_TIME, len(listed))) as pool:
        return list(pool.map(work, listed))


@dataclass(frozen=True)
class Reserved:
    """The reservations to start, each with its weight.

    Attributes:
        fresh: of this invocation's own grant, in its order.
        old: of invocations that have died.
        grants: the value of the process's `grants` after the grant.
        at: before the grant, in seconds since the epoch.
    """

    process: str
    fresh: Mapping[str, int]
    old: Mapping[str, int]
    grants: int
    at: float


@dataclass
class Settled:
    """The results of the reservations.

    Attributes:
        started: execution -> the parts read of its row.
        removed: whether one was removed together with its request, so that its slot is free for others.
        not_started: why some were put back; empty if none was.
        unsure: those of which it is not known whether they were started.
    """

    started: dict[str, QueuedBody] = field(default_factory=dict)
    put_back: list[str] = field(default_factory=list)
    rejected: list[Leaving] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)
    removed: bool = False
    not_started: str = ""


class ReservationStarter:
    """Starts reservations.

    Args:
        each: calls a function for each element of a list, and returns the results.
    """

    def __init__(
        self,
        starts: Starts,
        grants: Grants,
        requests: RequestTable,
        clock: Callable[[], float],
        each: Callable[[Callable[[str], StartOutcome | None], Sequence[str]], list[StartOutcome | None]] = in_threads,
    ) -> None:
        self._starts, self._grants, self._requests = starts, grants, requests
        self._clock, self._each = clock, each

    def start(self, reserved: Reserved) -> Settled:
        """Start the requests, and settle what was not started.

        Raises:
            ClientError, BotoCoreError: a call of DynamoDB failed. Some reservations are not settled.
        """
        weights = {**reserved.old, **reserved.fresh}
        settled = Settled()
        rows = self._requests.bodies(reserved.process, list(weights))
        queued = {name: row for name, row in rows.items() if row is not None and row.state == "QUEUED"}
        ended = [name for name, row in rows.items() if row is None or row.state not in ("QUEUED", "STARTED")]
        order = {name: number for number, name in enumerate(reserved.fresh)}

        def start(name: str) -> StartOutcome | None:
            """Start one request, and mark it; None if it was not tried, since another was not started."""
            if settled.not_started:
                return None
            if self._clock() > reserved.at + LATEST_START_SECONDS:
                outcome: StartOutcome = NotStarted("too late after the grant")
            else:
                outcome = self._starts.start(name, queued[name].text)
            if isinstance(outcome, NotStarted):
                settled.not_started = outcome.reason
            if isinstance(outcome, Running):
                granted = granted_as(reserved.grants, order[name]) if name in order else ""
                self._requests.mark_started(reserved.process, name, granted, self._clock())
            return outcome

        outcomes = dict(zip(queued, self._each(start, list(queued)), strict=True))
        unread = {name: None for name in weights if name not in rows}
        if unread:
            settled.not_started = settled.not_started or "the row was not read"
        back = {name for name, outcome in {**outcomes, **unread}.items() if isinstance(outcome, NotStarted | None)}
        if put_back := {name: weight for name, weight in reserved.fresh.items() if name in back}:
            removed = self._grants.put_back(reserved.process, put_back)
            settled.put_back += removed.weights
            for name in removed.weights:
                self._requests.note_put_back(reserved.process, name, removed.grants)
        if ended:
            gone = {name: weights[name] for name in ended}
            settled.removed = bool(self._grants.drop(reserved.process, gone).weights)
        for name, outcome in outcomes.items():
            match outcome:
                case Running():
                    settled.started[name] = queued[name]
                case Unsure() | OtherExecution(None):
                    settled.unsure.append(name)
                case StartRefused(reason):
                    self._reject(reserved.process, name, "InvalidExecution", reason, settled)
                case OtherExecution(float(since)) if _began_before(since, queued[name]):
                    self._reject(reserved.process, name, "NameTaken", _NAME_TAKEN, settled)
        return settled

    def _reject(self, process: str, name: str, code: str, reason: str, settled: Settled) -> None:
        leaving = Leaving(name, "REJECTED", code, reason)
        if self._requests.refuse(process, leaving, self._clock()):
            settled.rejected.append(leaving)
            settled.removed = True


_NAME_TAKEN = (
    "an execution of this request's name began before the request was accepted. A request_id must be unique for 90 "
    "days. Send this request again with a new request_id"
)


def _began_before(since: float, row: QueuedBody) -> bool:
    """Whether an execution is another request's. A later one is its own, and has closed: the row ends as it did."""
    return row.accepted is not None and since < row.accepted - CLOCK_SKEW_SECONDS
