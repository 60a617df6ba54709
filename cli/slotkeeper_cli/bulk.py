"""A change of many requests, as cancel, redrive and discard plan it. bulk_run.py carries it out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from slotkeeper.next_step import next_step
from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper_cli.errors import CommandFailed, CommandRefused
from slotkeeper_cli.formatting import count
from slotkeeper_cli.slot_control import add_command, no_process

# Requests that a question or a report names one by one.
MAX_NAMED = 5


class NotRedrivable(ValueError):
    """It would be refused again; the text states why."""


def check_process(name: str, processes: Mapping[str, Process | MalformedProcess]) -> None:
    """Raise NotRedrivable if a process runs no request that is sent or queued again.

    Args:
        processes: those that exist, by name.
    """
    match processes.get(name):
        case None:
            raise NotRedrivable(f"{no_process(name, processes)} Add it with: {add_command(name)}")
        case MalformedProcess():
            raise NotRedrivable(
                f"the item of process {name!r} is malformed, so it would wait. Repair it first: "
                f"{next_step('process repair', name)}"
            )
        case Process(target=target) if target == NO_TARGET:
            raise NotRedrivable(f"process {name} is for leases only: it runs no requests")


@dataclass(frozen=True)
class Chosen:
    """A request to change."""

    process: str
    execution: str
    request_id: str

    def as_dict(self) -> dict[str, str]:
        """The request as JSON and audit lines show it."""
        return {"process": self.process, "request_id": self.request_id, "execution": self.execution}


# A request, and why it was not changed; "" if it was.
Outcome = tuple[Chosen, str]


@dataclass
class BulkReport:
    """The requests that were changed, and those that were not.

    Attributes:
        left: each with the reason why it was not changed.
        failure: why not all were tried; empty if they were.
    """

    done: list[Chosen] = field(default_factory=list)
    left: list[Outcome] = field(default_factory=list)
    failure: str = ""

    @property
    def handled(self) -> int:
        return len(self.done) + len(self.left)

    def raise_for_outcome(
        self, asked: int, verb: str, unchanged: str = "", *, is_done: bool = False, noun: str = "request"
    ) -> None:
        """Raise CommandFailed or CommandRefused if not all was done.

        Args:
            asked: the number of requests to change.
            unchanged: a reason that is no failure, such as of a request that was changed before.
            is_done: whether the command has done something else.
        """
        left = [why for _, why in self.left if why != unchanged]
        if self.failure:
            raise CommandFailed(
                f"{len(self.done):,} of {count(asked, noun)} {verb}, then {self.failure}. Run this again for the rest"
            )
        if left and not (self.done or is_done):
            raise CommandRefused(f"nothing was {verb}: see the reasons above")
        if left:
            raise CommandFailed(f"{count(len(left), noun)} left, for the reasons above")


class RequestChange(ABC):
    """A change of requests, as it is planned. A subclass chooses them, and changes some of them in one call.

    Attributes:
        action: of the audit lines.
        verb: the participle of the change, such as `cancelled`.
        unchanged: the reason for which a request is left that was changed before.
        batch_size: the number of requests that one call of `act_on` receives.
        parts: how many calls of `act_on` an audit line is written for. They are made at the same time.
        chosen: the requests to change.
        left: the others, with the reason.
        notes: further facts of a request that was changed, by its execution: its field in JSON and its value.
    """

    action: ClassVar[str]
    verb: ClassVar[str]
    unchanged: ClassVar[str] = ""
    batch_size: ClassVar[int]
    parts: ClassVar[int] = 1

    def __init__(self) -> None:
        self.chosen, self.left = list[Chosen](), list[Outcome]()
        self.notes: dict[str, dict[str, str]] = {}

    @abstractmethod
    def question(self) -> str:
        """The question to the operator; empty if there is nothing to ask."""

    @abstractmethod
    def act_on(self, process: str, part: Sequence[Chosen]) -> Iterable[Outcome]:
        """Change some requests of a process; yield the outcome of each."""

    @abstractmethod
    def follow_up(self, process: str, done: list[str], /) -> None:
        """Send the messages that a change of these executions needs, such as a ring; also if the rest was left."""

    def finish(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Carry out the last step, such as a stop: yield each result as JSON shows it, and as text."""
        yield from ()


def names_of(chosen: Sequence[Chosen]) -> str:
    """The ids of the first requests, and how many others there are."""
    names = ", ".join(one.request_id for one in chosen[:MAX_NAMED])
    more = len(chosen) - MAX_NAMED
    return names + f" and {count(more, 'other')}" * (more > 0)


def reasons(left: Iterable[Outcome]) -> Iterator[str]:
    """A line for each reason why requests are left, with the first of them."""
    of: dict[str, list[Chosen]] = {}
    for one, why in left:
        of.setdefault(why, []).append(one)
    for why, ones in of.items():
        yield f"left: {names_of(ones)}: {why}"
