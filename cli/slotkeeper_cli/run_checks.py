"""What must be true of a run that has ended and whose messages are all known, beyond what any history shows. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from slotkeeper_cli.formatting import count
from slotkeeper_cli.work_history import STARTED, Attempt, WorkHistory

_FAILED_QUEUE = "FailedRequestQueue"
_DEAD_LETTER_QUEUE = "RequestDeadLetterQueue"


def not_accounted(history: WorkHistory) -> Iterator[str]:
    """S3 of a whole run: each message has its outcome, each execution its message, and nothing is left."""
    if history.queued:
        yield f"{count(history.queued, 'message')} left on RequestQueue"
    yield from (f"{each.label} has not ended" for each in history.attempts if not each.is_closed)
    for name, process in history.processes.items():
        yield from (f"{name}: {each.execution} is still registered" for each in process.waiting.values())
    sent = {each.execution for each in history.sendings}
    yield from (
        f"{each.label} was started without a message" for each in history.attempts if each.execution not in sent
    )
    yield from _wrong_messages(history)
    yield from _wrong_outcomes(history)


def _wrong_messages(history: WorkHistory) -> Iterator[str]:
    """Kept messages without a reason, or of requests that did not fail."""
    sent = {key for each in history.sendings for key in (each.execution, each.message_id) if key}
    for each in history.kept:
        label = each.execution or f"message {each.source}"
        if not each.code or each.code == "none" or not each.reason:
            yield f"{label} is in {each.queue} without a reason"
        if each.queue == _DEAD_LETTER_QUEUE and not sent & {each.execution, each.source}:
            yield f"{label} is in {each.queue}, and was not sent"
        attempt = history.by_execution.get(each.execution)
        # One that was aborted after it kept its request, and then redriven, has failed once and succeeded once.
        if each.queue == _FAILED_QUEUE and not (attempt and (attempt.has_failed or attempt.redrives)):
            yield f"{label} is in {each.queue}, and did not fail"


def _wrong_outcomes(history: WorkHistory) -> Iterator[str]:
    dead: dict[str, list[str]] = defaultdict(list)
    for kept in history.kept:
        if kept.queue == _DEAD_LETTER_QUEUE:
            for key in {kept.execution, kept.source} - {""}:
                dead[key].append(kept.code)
    last: dict[tuple[str, str, str], Attempt] = {}
    for attempt in sorted(history.attempts, key=lambda each: each.number):
        last[attempt.process, attempt.request_id, attempt.caller] = attempt
    for sending in history.sendings:
        codes = dead.get(sending.message_id) or dead.get(sending.execution) or []
        first = history.by_execution.get(sending.execution)
        if first is not None and codes:
            yield f"{first.label} was started and dead-lettered"
        if len(codes) > 1:
            yield f"{sending.execution} was dead-lettered {len(codes)} times"
        ended = last[first.process, first.request_id, first.caller] if first else None
        status = "" if ended is None else "FAILED" if ended.has_failed else ended.status
        found = status or next(iter(codes), "")
        if sending.outcome and found not in ("", sending.outcome) and not (status and sending.outcome == STARTED):
            yield f"{ended.label if ended else sending.execution} ended {found}, expected {sending.outcome}"


def without_success(history: WorkHistory) -> Iterator[str]:
    """S7 of a whole run: an execution that succeeded has run exactly one thing that did."""
    done = Counter(each.execution for each in history.work if each.succeeded)
    for attempt in history.attempts:
        if attempt.status == "SUCCEEDED" and not done[attempt.execution]:
            yield f"{attempt.label} succeeded, and nothing that it ran did"
