"""Checks of requests: none is lost (S3), what succeeded does not run again (S7), and their order (S5). Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

from slotkeeper.slots.executions import ACCOUNTED_FOR, ANSWER_FAILED, SUCCEEDED_CAUSE
from slotkeeper.slots.process import RETENTION_SECONDS
from slotkeeper.slots.request import execution_name
from slotkeeper_cli.check_result import CheckResult, Found, conclude, sample_of
from slotkeeper_cli.formatting import count, iso
from slotkeeper_cli.request_fields import fields_in
from slotkeeper_cli.run_checks import not_accounted, without_success
from slotkeeper_cli.work_history import (
    CHILD,
    CHILDREN,
    EXECUTIONS,
    GLUE_RUNS,
    REQUESTS,
    Attempt,
    Sending,
    WorkHistory,
    WorkInterval,
)

_RETURNED = "RequestReturned"


def accounted(history: WorkHistory) -> CheckResult:
    """S3: every request that started has ended, is kept, is queued again or runs; every known message was handled.

    RequestQueue cannot be searched, so a request that may be there is not decided. A message that something else than
    this command has deleted from FailedRequestQueue looks lost.

    In a whole run, each message also has the expected outcome, and nothing is left.
    """
    claim = "every request that started has ended, is kept, is queued again or runs"
    found, ends = Found(unknown=history.lacks(EXECUTIONS)), Counter[str]()
    places = _Places(history)
    for attempt in history.attempts:
        if attempt.stopped is not None and attempt.stopped < history.since:
            continue
        end = places.of(attempt)
        ends[end] += 1
        if end == "lost":
            found.fails.append(
                f"{attempt.label} ended {attempt.status} at {iso(attempt.stopped or 0)}: neither in "
                "FailedRequestQueue, nor redriven, discarded or queued again"
            )
    for sending in history.sendings:
        if sending.execution not in history.by_execution and sending.at >= history.since:
            end = places.of_message(sending)
            ends[f"{end}, not started"] += 1
            if end == "lost":
                found.fails.append(f"{sending.execution}, sent at {iso(sending.at)}: neither started nor dead-lettered")
    for name, process in history.processes.items():
        for execution, lost in process.lost.items():
            if lost.reported and lost.noted >= history.since and execution not in history.by_execution:
                ends["lost, not started"] += 1
                found.fails.append(f"{lost.request_id or execution} ({name}): its message was deleted or purged")
    if history.run:
        found.fails += not_accounted(history)
    undecided = {end: number for end, number in ends.items() if end.startswith("not known")}
    found.unknown += [f"{number:,} {end}" for end, number in undecided.items()]
    text = ", ".join(
        f"{number:,} {end}"
        for end, number in sorted(ends.items(), key=lambda each: (-each[1], each[0]))
        if end not in undecided
    )
    sample = sample_of(history, EXECUTIONS, REQUESTS)
    numbers = {"ends": dict(ends)}
    return conclude("accounted", claim, found, text or "no request started", numbers, shown=bool(ends), sample=sample)


class _Places:
    """Where the request of an attempt is."""

    def __init__(self, history: WorkHistory) -> None:
        self._history = history
        self._kept = {each.execution for each in history.kept}
        self._sources = {each.source for each in history.kept} - {""}
        self._named = {
            execution
            for process in history.processes.values()
            for execution in (*process.holders, *(each.execution for each in process.named.values()), *process.lost)
        }
        self._sent = {each.execution for each in history.sendings}
        self._redriven = set[tuple[str, str, int]]()
        self._discarded = set[tuple[str, str, int]]()
        for act in history.acts:
            if act.action == "dlq redrive":
                for one in act.fields.get("sent", []):
                    self._redriven.add((one.get("process", ""), one.get("request_id", ""), one.get("attempt", 0) - 1))
            elif act.action == "dlq discard":
                body = fields_in(act.fields.get("body", ""))
                key = (body.get("process", ""), act.fields.get("request_id", ""), body.get("attempt", 1))
                self._discarded.add(key)
        self._succeeded = {each.execution for each in history.work if each.succeeded}
        self._children = {each.execution for each in history.work if each.succeeded and each.kind == CHILD}

    def of(self, attempt: Attempt) -> str:
        """One of a few phrases; `lost` only if every record was read in which the request could be."""
        history = self._history
        if not attempt.has_failed:
            return "succeeded" if attempt.is_closed else "running"
        if attempt.execution in self._kept:
            return "kept"
        if attempt.error == ANSWER_FAILED and attempt.cause.startswith(SUCCEEDED_CAUSE):
            return "succeeded"
        if attempt.execution in self._children or (attempt.caller and attempt.execution in self._succeeded):
            return "succeeded"
        if attempt.is_read:
            key = (attempt.process, attempt.request_id, attempt.number)
            callers = {attempt.caller, ""}
            following = {execution_name(*key[:2], attempt.number + 1, caller) for caller in callers}
            if following & (history.by_execution.keys() | self._named | self._kept | self._sent):
                return "queued again"
            if key in self._redriven:
                return "queued again"
            if key in self._discarded:
                return "discarded by an operator"
        return self._missing(attempt)

    def _missing(self, attempt: Attempt) -> str:
        history, ended = self._history, attempt.stopped or 0.0
        if lacking := history.lacks("FailedRequestQueue", "AuditLogGroup", "SlotTable"):
            return f"not known, since not all could be read ({lacking[0]})"
        if not attempt.is_read:
            return "not known, since their requests were not read"
        if attempt.error == _RETURNED:
            return "not known: returned, and perhaps on RequestQueue" if self._may_be_queued(ended) else "lost"
        if ended < history.now - RETENTION_SECONDS:
            return "not known: kept messages expire after 14 days"
        if attempt.error not in ACCOUNTED_FOR and ended > history.now - history.bounds.dead_holder:
            return "ended, to be kept by the janitor"
        if attempt.process not in history.processes:
            return "not known: their process was removed, or its item is malformed"
        return "lost"

    def of_message(self, sending: Sending) -> str:
        """Where a message is that has started no execution."""
        history = self._history
        if sending.execution in self._kept or sending.message_id in self._sources:
            return "dead-lettered"
        if sending.execution in self._named:
            return "waiting"
        if lacking := history.lacks(EXECUTIONS, "RequestDeadLetterQueue", "AuditLogGroup", "SlotTable"):
            return f"not known, since not all could be read ({lacking[0]})"
        return "not known: perhaps on RequestQueue" if self._may_be_queued(sending.at) else "lost"

    def _may_be_queued(self, sent: float) -> bool:
        """SQS's counts lag by a minute (SQS API Reference, GetQueueAttributes)."""
        history = self._history
        return history.queued != 0 or sent > history.now - history.bounds.dead_holder


def never_again(history: WorkHistory) -> CheckResult:
    """S7: nothing that succeeded ran again, and one execution never has two Glue runs at the same time.

    Of requests that were not read, only the work of each single execution is compared.
    """
    claim = "nothing that succeeded ran again"
    found = Found(unknown=history.lacks(EXECUTIONS, GLUE_RUNS, CHILDREN) or history.lacks_work())
    by_execution: dict[tuple[str, str], list[WorkInterval]] = defaultdict(list)
    for work in history.work:
        if work.execution:
            by_execution[work.kind, work.execution].append(work)
    repeated = 0
    for (kind, execution), works in by_execution.items():
        for earlier, later in pairwise(sorted(works, key=lambda each: each.started)):
            repeated += 1
            if earlier.succeeded:
                found.fails.append(
                    f"{execution}: a {kind} started at {iso(later.started)}, after one that had succeeded"
                )
            elif later.certain(history.now)[0] < earlier.certain(history.now)[1]:
                found.fails.append(f"{execution}: two {kind}s ran at {iso(later.started)}")
    if history.run and not found.unknown:
        found.fails += without_success(history)
    requests: dict[tuple[str, str, str], list[Attempt]] = defaultdict(list)
    for attempt in history.attempts:
        if attempt.is_read:
            requests[attempt.process, attempt.request_id, attempt.caller].append(attempt)
    for attempts in requests.values():
        for before, after in pairwise(sorted(attempts, key=lambda each: each.number)):
            # An execution that was redriven may succeed after the next attempt has started.
            if before.status == "SUCCEEDED" and (before.stopped or 0.0) <= after.started:
                at = iso(after.started)
                found.fails.append(f"{before.label} succeeded, and attempt {after.number} started at {at}")
    succeeded = sum(each.status == "SUCCEEDED" for each in history.attempts)
    text = f"{succeeded:,} succeeded; {count(repeated, 'further run')} of an execution after one without success"
    numbers = {"succeeded": succeeded, "further_runs": repeated}
    sample = sample_of(history, EXECUTIONS, GLUE_RUNS, CHILDREN, REQUESTS)
    return conclude("once", claim, found, text, numbers, shown=succeeded > 0, sample=sample)


def in_order(history: WorkHistory) -> CheckResult:
    """S5: the requests of one priority start in the order of their sequence numbers. Equal instants are in order."""
    claim = "the requests of one priority start in the order of their messages"
    found, starts = Found(unknown=history.lacks(EXECUTIONS)), 0
    groups: dict[str, list[tuple[float, int, str]]] = defaultdict(list)
    for sending in history.sendings:
        attempt = history.by_execution.get(sending.execution)
        if attempt is not None and sending.sequence is not None:
            groups[sending.group].append((attempt.started, sending.sequence, sending.execution))
    for group, known in groups.items():
        starts += max(0, len(known) - 1)
        found.fails += [
            f"{group}: {later[2]} started at {iso(later[0])}, after {earlier[2]}, which was sent later"
            for earlier, later in pairwise(sorted(known))
            if later[1] < earlier[1]
        ]
    text = f"{count(starts, 'start')} after the previous message's" if starts else "no sequence numbers are known"
    return conclude("order", claim, found, text, {"starts": starts}, shown=starts > 0)
