"""Changes many requests: what cancel, redrive and discard have in common.

A command chooses requests, asks, changes them process by process and in steps, with an audit line before each step, and
reports what was changed and what was left, with the reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import batched, groupby
from typing import Any, ClassVar

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from slotkeeper.aws.dynamodb import MalformedAttribute
from slotkeeper.next_step import next_step
from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper_cli.audit_log import audit
from slotkeeper_cli.context import CommandContext
from slotkeeper_cli.errors import CommandFailed, CommandRefused, failure_text
from slotkeeper_cli.formatting import count
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.slot_control import add_command, no_process
from slotkeeper_cli.unread import UnreadSource, print_not_read

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
    """What was done.

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


class RequestChange:
    """A change of requests, as it is planned. A subclass chooses them, and changes some of them in one call.

    Attributes:
        action: of the audit lines.
        verb: what is done, such as `cancelled`.
        unchanged: the reason for which a request is left that was changed before.
        batch_size: the number of requests that one call of `act_on` receives.
        parts: how many calls of `act_on` an audit line is written for. They are made at the same time.
        chosen: the requests to change.
        left: the others, with the reason.
        notes: what the answer states of a request that was changed, by its execution: its field in JSON and its value.
    """

    action: ClassVar[str]
    verb: ClassVar[str]
    unchanged: ClassVar[str] = ""
    batch_size: ClassVar[int]
    parts: ClassVar[int] = 1

    def __init__(self) -> None:
        self.chosen, self.left = list[Chosen](), list[Outcome]()
        self.notes: dict[str, dict[str, str]] = {}

    def question(self) -> str:
        """What the operator confirms; empty if there is nothing to ask."""
        raise NotImplementedError

    def act_on(self, process: str, part: Sequence[Chosen]) -> Iterable[Outcome]:
        """Change some requests of a process; yield the outcome of each."""
        raise NotImplementedError

    def follow_up(self, process: str, done: list[str], /) -> None:
        """What follows a change of these executions, such as a ring; also if the rest was not changed."""

    def finish(self) -> Iterator[tuple[dict[str, Any], str]]:
        """What the command does after that, such as a stop: yield each as JSON shows it, and as text."""
        yield from ()


def carry_out(
    context: CommandContext,
    change: RequestChange,
    *,
    dry_run: bool,
    also: str = "",
    not_read: Sequence[UnreadSource] = (),
) -> None:
    """Ask, change the requests, and report. An interruption passes through, after a line with what was done.

    Args:
        also: the name in JSON of what `finish` has done; empty: the answer does not have it.
        not_read: what could not be read.

    Raises:
        CommandRefused: all were left, or the operator does not confirm.
        CommandFailed: not all were changed.
    """
    question = change.question()
    if not question and any(why != change.unchanged for _, why in change.left):
        raise CommandRefused(f"nothing was {change.verb}:", *reasons(change.left))
    if question and not dry_run:
        context.confirm(question)
    report = BulkReport(done=change.chosen) if dry_run else _made(context, change)
    report.left = [*change.left, *report.left]
    finished = list[tuple[dict[str, Any], str]]()
    try:
        finished += () if dry_run or report.failure else change.finish()
    except (ClientError, BotoCoreError) as error:
        report.failure = failure_text(error)
    done = [one.as_dict() | change.notes.get(one.execution, {}) for one in report.done]
    left = [{**one.as_dict(), "why": why} for one, why in report.left]
    unread = [each.as_dict() for each in not_read]
    data: dict[str, Any] = {"dry_run": dry_run, change.verb: done, "left": left, "not_read": unread}
    data |= {also: [fact for fact, _ in finished]} if also else {}
    was = f"would be {change.verb}" if dry_run else change.verb
    lines = [text for _, text in finished]
    for one in done if len(done) <= MAX_NAMED else []:
        lines.append(f"{was}: {one['request_id']} ({one['process']}){f' as {one["next"]}' if 'next' in one else ''}")
    lines += [*reasons(report.left), f"{count(len(done), 'request')} {was}, {len(left):,} left."]

    def render(console: Console) -> None:
        for line in lines:
            console.print(line)
        print_not_read(console, unread)

    context.out.result(data, render)
    report.raise_for_outcome(len(change.chosen), change.verb, change.unchanged, is_done=bool(finished or dry_run))


def _made(context: CommandContext, change: RequestChange) -> BulkReport:
    """Change all that are chosen, up to a call that fails."""
    report, total = BulkReport(), count(len(change.chosen), "request")
    with context.out.progress() as progress:
        task = progress.add_task(change.verb, total=len(change.chosen))
        try:
            for process, of in groupby(sorted(change.chosen, key=_process_of), _process_of):
                before = len(report.done)
                try:
                    for step in batched(of, change.batch_size * change.parts, strict=False):
                        _step(change, process, step, report)
                        progress.update(task, completed=report.handled)
                        if report.failure:
                            return report
                finally:
                    if done := [one.execution for one in report.done[before:]]:
                        _follow_up(context, change, process, done)
        except BaseException:
            context.out.note(f"{len(report.done):,} of {total} {change.verb}: run this again for the rest.")
            raise
    return report


def _step(change: RequestChange, process: str, step: Sequence[Chosen], report: BulkReport) -> None:
    def act_on(part: Sequence[Chosen]) -> tuple[list[Outcome], str]:
        """What came of some requests; and why the others were not tried, or ""."""
        outcomes = list[Outcome]()
        try:
            outcomes += change.act_on(process, part)
        except (ClientError, BotoCoreError, MalformedAttribute) as error:
            return outcomes, failure_text(error)
        return outcomes, ""

    audit(change.action, process=process, requests=[each.as_dict() for each in step])
    for outcomes, failure in in_parallel(act_on, batched(step, change.batch_size, strict=False)):
        report.done += [one for one, why in outcomes if not why]
        report.left += [(one, why) for one, why in outcomes if why]
        report.failure = report.failure or failure


def _follow_up(context: CommandContext, change: RequestChange, process: str, done: list[str]) -> None:
    try:
        change.follow_up(process, done)
    except (ClientError, BotoCoreError):
        context.out.note(f"No message could be sent for {process}: the janitor does the rest in its next run.")


def _process_of(one: Chosen) -> str:
    return one.process


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
