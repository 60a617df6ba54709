"""Changes many requests: process by process, in steps, with an audit line before each, and a report as it goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import batched, groupby
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.aws.dynamodb import MalformedAttribute
from slotkeeper_cli.audit_log import audit
from slotkeeper_cli.errors import CommandFailed, CommandRefused, failure_text
from slotkeeper_cli.formatting import count
from slotkeeper_cli.output import Output
from slotkeeper_cli.stack_connection import in_parallel

# Seconds before each repeat of a transaction that met another one, or was throttled. The layer has repeated it within a
# second before.
WAITS = (0.2, 0.4, 0.8, 1.6, 3.2)
_REPEATED = {
    "InternalServerError",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "TransactionCanceledException",
    "TransactionConflictException",
    "TransactionInProgressException",
}
# Requests that a question or a report names one by one.
MAX_NAMED = 5


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
    """What was done.

    Attributes:
        left: each with the reason why it was not changed.
        failure: why not all were tried; empty if they were.
        unrung: processes for which what follows the change, such as the ring, has failed.
    """

    done: list[Chosen] = field(default_factory=list)
    left: list[Outcome] = field(default_factory=list)
    failure: str = ""
    unrung: list[str] = field(default_factory=list)

    @property
    def handled(self) -> int:
        return len(self.done) + len(self.left)

    def as_dict(self, verb: str, *, dry_run: bool) -> dict[str, Any]:
        """The report as JSON shows it."""
        left = [{**one.as_dict(), "why": why} for one, why in self.left]
        return {"dry_run": dry_run, verb: [one.as_dict() for one in self.done], "left": left}

    def lines(self, verb: str, notes: Mapping[str, str] | None = None) -> Iterator[str]:
        """The report in words. `notes`: what is said of a request that was changed, by its execution."""
        for one in self.done if len(self.done) <= MAX_NAMED else []:
            yield f"{verb}: {one.request_id} ({one.process}){(notes or {}).get(one.execution, '')}"
        yield from reasons(self.left)
        yield f"{count(len(self.done), 'request')} {verb}, {len(self.left):,} left."

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


class Bulk:
    """Changes requests.

    Args:
        action: of the audit lines.
        verb: what was done, such as `cancelled`.
        change: receives a process and some requests of it; yields the outcome of each.
        size: the number of requests that `change` receives.
        parts: how many calls of `change` an audit line is written for. They are made at the same time.
        after: receives a process and the executions of it that were changed, also if the rest was not.
    """

    def __init__(
        self,
        out: Output,
        action: str,
        verb: str,
        change: Callable[[str, Sequence[Chosen]], Iterable[Outcome]],
        size: int,
        parts: int = 1,
        after: Callable[[str, list[str]], object] = lambda *_: None,
    ) -> None:
        self.report = BulkReport()
        self.verb = verb
        self._out, self._action = out, action
        self._change, self._size, self._parts, self._after = change, size, parts, after

    def run(self, chosen: Sequence[Chosen]) -> BulkReport:
        """Change the requests. An interruption passes through, after a line with what was done."""
        with self._out.progress() as progress:
            task = progress.add_task(self.verb, total=len(chosen))
            try:
                for process, of in groupby(sorted(chosen, key=_process_of), _process_of):
                    self._run(process, of, lambda: progress.update(task, completed=self.report.handled))
            except BaseException:
                done = f"{len(self.report.done):,} of {count(len(chosen), 'request')} {self.verb}"
                self._out.note(f"{done}: run this again for the rest.")
                raise
        for name in self.report.unrung:
            self._out.note(f"No message could be sent for {name}: the janitor does the rest in its next run.")
        return self.report

    def _run(self, process: str, of: Iterable[Chosen], on_step: Callable[[], object]) -> None:
        done = list[str]()
        try:
            for step in batched(() if self.report.failure else of, self._size * self._parts, strict=False):
                audit(self._action, process=process, requests=[each.as_dict() for each in step])
                parts = batched(step, self._size, strict=False)
                for outcomes, failure in in_parallel(lambda part: self._outcomes(process, part), parts):
                    done += [one.execution for one, why in outcomes if not why]
                    self.report.done += [one for one, why in outcomes if not why]
                    self.report.left += [(one, why) for one, why in outcomes if why]
                    self.report.failure = self.report.failure or failure
                on_step()
                if self.report.failure:
                    return
        finally:
            if done:
                self._follow_up(process, done)

    def _outcomes(self, process: str, part: Sequence[Chosen]) -> tuple[list[Outcome], str]:
        """What came of some requests; and why the others were not tried, or ""."""
        outcomes = list[Outcome]()
        try:
            for outcome in self._change(process, part):
                outcomes.append(outcome)
        except (ClientError, BotoCoreError, MalformedAttribute) as error:
            return outcomes, failure_text(error)
        return outcomes, ""

    def _follow_up(self, process: str, done: list[str]) -> None:
        try:
            self._after(process, done)
        except (ClientError, BotoCoreError):
            self.report.unrung.append(process)


def _process_of(one: Chosen) -> str:
    return one.process


def repeated[Result](call: Callable[[], Result]) -> Result:
    """The result of a call, which is repeated after a conflict or a throttle."""
    waits = iter(WAITS)
    while True:
        try:
            return call()
        except ClientError as error:
            wait = next(waits, None)
            if error.response["Error"]["Code"] not in _REPEATED or wait is None:
                raise
        time.sleep(wait)


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
