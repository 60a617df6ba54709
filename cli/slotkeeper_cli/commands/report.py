"""`slotkeeper retry report`: the failures of work by cause, with the next steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from slotkeeper.retry.downstream.downstreams import DownstreamTable
from slotkeeper.retry.failures.reading import MAX_PAGES, Bounds, counted_calls, read_report
from slotkeeper.retry.failures.report import BreakerHistory, Cause, DeadLetterNote, FailureReport, Period, next_steps
from slotkeeper_cli.context import CommandContext, current_context
from slotkeeper_cli.dead_letters import DeadLetterMessage, DeadLetterQueueName, DeadLetterQueueReader
from slotkeeper_cli.formatting import count, duration, iso, local_time, period_seconds, seconds
from slotkeeper_cli.look.pages import render, write_page
from slotkeeper_cli.look.timeline import spark_svg
from slotkeeper_cli.output import table
from slotkeeper_cli.retries import RetryControl

MAX_DEAD_LETTERS = 500
# A receive for each dead-letter message if each returns one, 51 batches that make them visible, the pages of the
# ledger, the page of the downstreams' table, and three descriptions.
MAX_CALLS = MAX_PAGES + MAX_DEAD_LETTERS + 51 + 1 + 3 + 1
# The ledger keeps a row for at least 29 days after its last attempt, and the period before is read, too.
MAX_PERIOD = 14 * 86400


def _seconds(text: str) -> float:
    seconds = period_seconds(text) or 0
    if not 60 <= seconds <= MAX_PERIOD:
        raise typer.BadParameter(f"expected 1m to 14d, such as 90m, 24h or 7d, got {text!r}")
    return seconds


def report(
    since: Annotated[
        str, typer.Option(metavar="PERIOD", help="Length of the period up to now: 90m, 24h, 7d; at most 14d.")
    ] = "24h",
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the report as one HTML page.", dir_okay=False)
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="Maximum number of causes that are shown as text.")
    ] = 10,
) -> None:
    """Report the failures of work by cause, with next steps.

    It also states what changed against the period before. A cause is an error type and its message without numbers,
    ids, times and quoted values. The command reads RequestLedgerTable (at most 2,000 pages of 1 MB, at half a read unit
    per 4 KB), 500 messages of WorkDeadLetterQueue and DownstreamTable, with at most 2,556 calls. The last lines state
    the numbers of items that were read. The command changes nothing; dead-letter messages are hidden from other
    commands while it reads them.
    """
    length = _seconds(since)
    context = current_context()
    now = time.time()
    data = as_dict(_read(context, Period(now - length, now)), context.stack.name)
    if html is not None:
        write_page(html, page(data))
        context.out.note(f"The page is in {html}.")
    context.out.result(data, lambda console: _render(console, data, limit))


def _read(context: CommandContext, period: Period) -> FailureReport:
    stack = context.stack
    downstreams = DownstreamTable(stack.client("dynamodb"), stack.outputs["DownstreamTableName"])
    with counted_calls(stack.client("dynamodb"), stack.client("sqs")) as calls:
        work = RetryControl(stack)
        reader = DeadLetterQueueReader(stack, DeadLetterQueueName.WORK)
        notes = [_note(message) for message in reader.peek(MAX_DEAD_LETTERS)]
        with context.out.progress() as progress:
            task = progress.add_task("rows of the ledger", total=work.approximate_row_count() or None)
            found = read_report(
                work.ledger,
                downstreams,
                period,
                notes,
                bounds=Bounds(),
                on_page=lambda rows: progress.advance(task, rows),
            )
        if unread := reader.unread(MAX_DEAD_LETTERS):
            left = f"about {count(unread.messages or 0, 'message')} of WorkDeadLetterQueue, of {reader.size():,}"
            found.reading.left_out.append(left)
        found.reading.calls = calls()
    return found


def _note(message: DeadLetterMessage) -> DeadLetterNote:
    # The worker names the source message if it made no attempt. SQS itself adds no attributes.
    attempted = bool(message.attributes) and "source_message_id" not in message.attributes
    return DeadLetterNote(message.request_id, message.code, message.reason, message.sent_at, attempted)


def as_dict(found: FailureReport, stack: str) -> dict[str, Any]:
    """The report as `--json` prints it. Times are ISO 8601 in UTC, durations seconds."""
    return {
        "stack": stack,
        "from": iso(found.period.start),
        "to": iso(found.period.end),
        "failures": found.failures,
        "failures_before": found.before,
        "over_time": found.buckets,
        "causes": [_cause(cause, found, stack) for cause in found.causes],
        "gone": [
            {"cause": cause.code, "type": cause.error_type, "message": cause.fingerprint, "failures": cause.before}
            for cause in found.gone
        ],
        "downstreams": {name: vars(failures) for name, failures in found.downstreams.items()},
        "breakers": [_breaker(each) for each in found.breakers],
        "read": vars(found.reading),
    }


def _cause(cause: Cause, found: FailureReport, stack: str) -> dict[str, Any]:
    return {
        "cause": cause.code,
        "type": cause.error_type,
        "message": cause.fingerprint,
        "failures": cause.failures,
        "failures_before": cause.before,
        "new": cause.is_new,
        "ratio": round(cause.failures / cause.before, 2) if cause.before else None,
        "attempts": cause.attempts,
        "requests": cause.requests,
        "lost": cause.lost,
        "recovered": cause.recovered,
        "waiting": cause.waiting,
        "first": iso(cause.first),
        "last": iso(cause.last),
        "example": cause.example,
        "downstreams": dict(cause.downstreams.most_common()),
        "dead_letter_codes": dict(cause.codes),
        "over_time": cause.buckets,
        "next_steps": list(next_steps(cause, found, stack)),
    }


def _breaker(each: BreakerHistory) -> dict[str, Any]:
    changes = [{"at": iso(change.at), "to": change.to, "why": change.why, "by": change.by} for change in each.changes]
    return {**vars(each), "open_seconds": round(each.open_seconds), "changes": changes}


def page(data: dict[str, Any]) -> str:
    """The report as a page, from what `--json` prints. Returns a text in UTF-8."""
    since, until = seconds(data["from"]), seconds(data["to"])

    width = (until - since) / len(data["over_time"])

    def spark(buckets: list[int]) -> str:
        steps = [(since + place * width, number) for place, number in enumerate(buckets)]
        return spark_svg(steps, since, until, f"failures over time: at most {max(buckets):,} in {duration(width)}")

    return render(
        "report.html",
        **data,
        title=f"Failures of work on stack {data['stack']}",
        since=data["from"],
        change=_change_text(data),
        spark=spark,
        bucket=width,
        breaker_texts=[(each, _breaker_text(each)) for each in data["breakers"]],
        footer=[*_footer(data["read"])],
    )


def _change_text(data: dict[str, Any]) -> str:
    """`12 failures, 3.0 times as many as in the period before (4)`."""
    failures, before = data["failures"], data["failures_before"]
    text = count(failures, "failure")
    if not before:
        return f"{text}, none in the period before" if failures else f"{text}, as in the period before"
    return f"{text}, {failures / before:.1f} times as many as in the period before ({before:,})"


def _breaker_text(each: dict[str, Any]) -> str:
    """The openings, closings and open time of a breaker in the period."""
    at_least = "at least " if each["incomplete"] else ""
    now = "it is open now" if each["is_open"] else "it is closed now"
    return (
        f"breaker of {each['downstream']}: {at_least}{count(each['openings'], 'opening')}, "
        f"{count(each['closings'], 'closing')}, open for {duration(each['open_seconds'])}; {now}"
    )


def _footer(read: dict[str, Any]) -> Iterator[str]:
    """Sentences about the items that were read, and those that were not."""
    yield (
        f"Read {count(read['rows'], 'row')} of RequestLedgerTable and {count(read['dead_letters'], 'message')} of "
        f"WorkDeadLetterQueue, with {count(read['calls'], 'call')}."
    )
    for part in read["left_out"]:
        yield f"Not read: {part}. The numbers above are minima."
    if read["unlisted"]:
        yield (
            f"Not counted: {count(read['unlisted'], 'failed attempt')} of long histories, of which the ledger keeps "
            "the first entry and the last 19."
        )
    if read["malformed"]:
        names = "; ".join(read["malformed_names"])
        yield f"Not counted: {count(read['malformed'], 'malformed item')}: {names}"


def _render(console: Console, data: dict[str, Any], limit: int) -> None:
    since, until = seconds(data["from"]), seconds(data["to"])
    period = f"{local_time(since)} to {local_time(until)} ({duration(until - since)})"
    console.print(f"Failures of work on stack {data['stack']}, {period}")
    console.print(_change_text(data))
    causes = data["causes"]
    made = table(">#", "error type", ">failures", ">requests", ">lost", ">recovered", ">waiting", "change")
    for number, cause in enumerate(causes[:limit], 1):
        of = ("failures", "requests", "lost", "recovered", "waiting")
        change = "new" if cause["new"] else f"x {cause['ratio']:.1f}"
        made.add_row(str(number), cause["type"], *(f"{cause[each]:,}" for each in of), change)
    if causes:
        console.print("", made, sep="\n")
    for number, cause in enumerate(causes[:limit], 1):
        names = ", ".join(f"{name} ({number:,})" for name, number in [*cause["downstreams"].items()][:3])
        attempts, example = count(cause["attempts"], "failed attempt"), cause["example"] or "none"
        console.print()
        console.print(f"{number}. {cause['type']}: {cause['message']}", style="bold")
        console.print(f"   {local_time(seconds(cause['first']))} to {local_time(seconds(cause['last']))}")
        console.print(f"   {attempts}; downstream {names}; example {example}")
        for step in cause["next_steps"]:
            console.print(f"   - {step}")
    lines = [f"{count(len(causes) - limit, 'more cause')} not shown: raise --limit"] if len(causes) > limit else []
    for cause in data["gone"][:limit]:
        failures = count(cause["failures"], "failure")
        lines.append(f"gone since the period before: {cause['type']}: {cause['message']} ({failures})")
    lines += map(_breaker_text, data["breakers"])
    for line in ["", *lines] if lines else []:
        console.print(line)
    if data["downstreams"]:
        made = table("downstream", ">failures", ">before", ">requests", ">lost")
        for name, each in data["downstreams"].items():
            made.add_row(name, *(f"{number:,}" for number in each.values()))
        console.print("", made, sep="\n")
    console.print()
    for line in _footer(data["read"]):
        console.print(line, style="dim")
