"""Carries out a change of many requests: cancel, redrive or discard.

It asks, changes the requests process by process and in steps, with an audit line before each step, and reports the
requests that were changed, and those that were left, with the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import batched, groupby
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from slotkeeper.aws.dynamodb import MalformedAttribute
from slotkeeper_cli.audit_log import audit
from slotkeeper_cli.bulk import MAX_NAMED, BulkReport, Chosen, Outcome, RequestChange, reasons
from slotkeeper_cli.context import CommandContext
from slotkeeper_cli.errors import CommandRefused, failure_text
from slotkeeper_cli.formatting import count
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.unread import UnreadSource, print_not_read


def carry_out(
    context: CommandContext,
    change: RequestChange,
    *,
    dry_run: bool,
    also: str = "",
    not_read: Sequence[UnreadSource] = (),
) -> None:
    """Ask, change the requests, and report. An interruption passes through, after a line with their number.

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
        """The outcomes of some requests; and why the others were not tried, or ""."""
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
