"""What asks for a slot, and the results of asking."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from slotkeeper.aws.dynamodb import Item
from slotkeeper.slots.process import Process
from slotkeeper.slots.request import DEFAULT_PRIORITY, Delivery, Position, Priority, Request


class LeaseTerm(NamedTuple):
    """The end of a lease, in whole seconds since the epoch, and the random code that only its holder knows."""

    until: int
    code: str


@dataclass(frozen=True)
class Candidate:
    """A request that asks for a slot, and the delivery of its message, or a lease.

    Attributes:
        weight: None means the process's default weight.
        delivery: None for a caller without a message: it is refused while any request waits.
        request_id: for the operator command. An execution's name is a hash, which does not contain it.
        task_token: stored with the slot, for the answer to the caller that waits.
        lease: for a block of code that asks for a slot; None for an execution.
    """

    process: str
    execution: str
    weight: int | None = None
    priority: Priority = DEFAULT_PRIORITY
    delivery: Delivery | None = None
    request_id: str = ""
    task_token: str = field(default="", repr=False)
    lease: LeaseTerm | None = None

    @classmethod
    def of(cls, request: Request, delivery: Delivery) -> Candidate:
        """The candidate of a request that was delivered."""
        execution, id_ = request.execution_name, request.request_id
        token = request.task_token
        return cls(request.process, execution, request.weight, request.priority, delivery, id_, token)

    @property
    def position(self) -> Position | None:
        return self.delivery.position if self.delivery else None

    def new_holder(self, now: float) -> Item:
        """The holder that a grant adds, in DynamoDB's format, without its weight."""
        since = {"N": str(int(now))}
        if self.lease is None:
            return {"state": {"S": "RESERVED"}, "since": since}
        until, code = {"N": str(self.lease.until)}, {"S": self.lease.code}
        return {"state": {"S": "LEASED"}, "since": since, "until": until, "code": code}

    @property
    def token_bytes(self) -> int:
        return len(self.task_token.encode())

    def weight_in(self, process: Process) -> int:
        """The weight that it takes of a process's limit."""
        return self.weight or process.default_weight

    def is_admitted_by(self, process: Process) -> bool:
        """Whether a reserve would succeed, for the item as it was read."""
        is_known = self.execution in process.holders or self.execution in process.cancelled
        return not is_known and process.admits(self.weight_in(process), self.priority, self.position, self.token_bytes)


@dataclass(frozen=True)
class Granted:
    """This call reserved the slot."""


@dataclass(frozen=True)
class AlreadyHeld:
    """The request already holds its slot: the message was redelivered, or the answer of an earlier call was lost."""


@dataclass(frozen=True)
class HeldByAnother:
    """Another request with this id holds a slot, since its weight is not this one's. Its slot may be too small."""

    weight: int


@dataclass(frozen=True)
class Full:
    """The request or its task token does not fit, or another one has its turn.

    `seen`: the process's item as it was at the refusal.
    """

    seen: Process = field(compare=False, repr=False)


@dataclass(frozen=True)
class Paused:
    """The process is paused. Requests are admitted again after an operator lifts the pause. `seen`: as in `Full`."""

    seen: Process = field(compare=False, repr=False)


@dataclass(frozen=True)
class Cancelled:
    """An operator has cancelled the request. `since`: seconds since the epoch. `by`: the operator, empty if unknown."""

    since: int
    by: str


@dataclass(frozen=True)
class UnknownProcess:
    """No item exists for the process. Unlike `Full`, waiting would never end."""


@dataclass(frozen=True)
class LeasesOnly:
    """The process has no target, so it runs no request. Unlike `Full`, waiting would never end."""


@dataclass(frozen=True)
class Misconfigured:
    """The item does not have the documented types, so conditions on it mean nothing. Example: a limit as a string."""

    reason: str


Reservation = (
    Granted | AlreadyHeld | HeldByAnother | Full | Paused | Cancelled | UnknownProcess | LeasesOnly | Misconfigured
)


class Registration(Enum):
    """The result of registering a refused delivery."""

    REGISTERED = auto()
    RESERVE_AGAIN = auto()  # a reserve may now have another outcome: a slot is free, or the process was removed
    SUPERSEDED = auto()  # a newer receive is already registered, or was granted
    SPENT = auto()  # a waker found this receive's handle outdated; only a further receive of the message can register
