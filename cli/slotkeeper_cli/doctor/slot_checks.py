"""Checks of the slots: processes, their targets, holders, queued, started and ended requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from slotkeeper.next_step import ToFillIn, next_step
from slotkeeper.slots.plan import (
    Behind,
    Blocked,
    InPause,
    KeyBlocked,
    KeyFull,
    Plan,
    Reason,
    Starting,
    Stopped,
    TooEarly,
)
from slotkeeper.slots.process import MAX_SLOT_LIMIT, Process
from slotkeeper.slots.rows import Listed, QueuedRow, RequestRow
from slotkeeper_cli.conditions import CAN_START, LEAVES, condition_of
from slotkeeper_cli.doctor import readings
from slotkeeper_cli.doctor.health_checks import Finding, HealthCheck, Severity
from slotkeeper_cli.formatting import count, cut, duration, local_time
from slotkeeper_cli.process_queue import ProcessQueue, are_queued, queue_again
from slotkeeper_cli.process_queue import queues as all_queues
from slotkeeper_cli.requests import hide_tokens
from slotkeeper_cli.slot_control import add_command

if TYPE_CHECKING:
    from slotkeeper_cli.account import Account

# Seconds after the grace time within which the janitor releases a dead holder: two runs, and two checks.
JANITOR_SECONDS = 600
_OPEN = ("RUNNING", "PENDING_REDRIVE")
_SOON_SECONDS = 900  # before a deadline, in which an operator can still act
_DISPATCH_SECONDS = 30  # after its sending, within which a request is dispatched also by a function that starts cold
_LATE_RING_SECONDS = 60
_LATE_END_SECONDS = 300  # the janitor publishes once a minute what the function of endings could not
_KEY_SECONDS = 600  # from which on a request has waited long for the limit of its key
_MAX_KEYS = 10  # of a process, for each of which its queue is planned again
_MAX_AGAIN = 20  # queues that are read a second time
ALWAYS = 3  # requests of a process without a success between them, from which on it always fails
_MAX_JUDGED = 50  # processes with failures whose history is read
_REASON = 200  # characters of a failure's reason
# Reasons of `plan` that an operator must know: other than these, a request waits for slots that are in use.
_HELD_BACK: dict[type[Reason], tuple[Severity, str]] = {
    InPause: ("warn", "The process starts nothing."),
    Stopped: ("bad", "The process starts nothing."),
    Blocked: ("bad", "Other requests pass them. Raise the limit, or cancel them."),
    KeyBlocked: ("bad", "Other requests pass them. Raise the limit of the key, or cancel them."),
    TooEarly: ("warn", "Slots are free. This is as it was set."),
}


# ------------------------------------------------------------------------------------------------------------ processes


def malformed(account: Account, now: float) -> Iterator[Finding]:
    processes, errors = account.processes()
    for error in errors:
        try:
            one = all_queues(account).of.get(error.process)
        except ClientError:  # other checks state it
            one = None
        one = one or ProcessQueue(error.process, error, Listed(), now)
        waits = f", and {are_queued(one.rows)}" * bool(one.rows)
        yield _queued(
            "bad",
            one,
            f"the item of process {one.name} is malformed{waits}",
            f"{error}. No request of the process starts.",
            next_step("process repair", one.name),
        )
    if not processes and not errors:
        yield Finding("warn", "there is no process", "Every request is rejected.", "slotkeeper process add")


def removed(account: Account, _now: float) -> Iterator[Finding]:
    """A dispatch rejects these, but no run of the janitor makes one for a process that does not exist."""
    for one in all_queues(account).of.values():
        # Read again: it may have been added since the processes were read.
        if one.process is None and account.item(one.name) is None:
            yield _queued(
                "bad",
                one,
                f"process {one.name} does not exist, and {are_queued(one.rows)}",
                "It was removed. They end as UnknownProcess when the starter receives a message for the process, and "
                "run if it is added again.",
                add_command(one.name),
            )


def drift(account: Account, _now: float) -> Iterator[Finding]:
    for one in account.processes()[0]:
        if one.has_drifted:
            yield Finding(
                "bad",
                f"process {one.name}: slots_in_use is {one.slots_in_use}, but {one.held_weight} in use by holders",
                "The janitor repairs it in its next run, within two minutes.",
                next_step("stack reconcile", one.name),
                one.name,
            )


def idle(account: Account, now: float) -> Iterator[Finding]:
    """Processes that start nothing; with queued requests they are findings of `held_back`."""
    for one in account.processes()[0]:
        queue = all_queues(account).of.get(one.name)  # None: it was added after them
        if (one.paused or not one.slot_limit) and queue and not queue.rows:
            condition = condition_of(InPause() if one.paused else Stopped(), one, now, {})
            what = f"process {one.name} admits no request: {condition['text']}"
            yield Finding("warn", what, "", condition["ends_by"], one.name)


def _queued(severity: Severity, one: ProcessQueue, what: str, why: str, command: str | None) -> Finding:
    """A finding of a whole queue, since its first request was sent."""
    return Finding(severity, what, why, command, one.name, one.oldest)


# ------------------------------------------------------------------------------------------------------ queued requests


def rows(account: Account, _now: float) -> Iterator[Finding]:
    """The rows that the other checks could not read."""
    for listed, what in (
        (all_queues(account).listed, "queued requests"),
        (readings.open_rows(account), "requests that have started, or whose end is not published"),
        (readings.failures(account), "failures of the last day"),
    ):
        for text in listed.malformed:
            how = "Correct it in the table of the output RequestTableName, or delete it and submit its request again."
            yield Finding("bad", f"a row of RequestTable is malformed: {text}", how)
        if listed.is_cut:
            yield Finding("warn", f"there are more than {len(listed.rows):,} {what}, and only these were checked")


def held_back(account: Account, now: float) -> Iterator[Finding]:
    """What keeps requests back, other than slots in use: the reasons of `plan`."""
    for process, one, planned in all_queues(account).planned:
        of: defaultdict[tuple[type[Reason], str], list[QueuedRow]] = defaultdict(list)
        for row in one.rows:
            if wait := planned.waits.get(row.queued.execution):
                of[type(wait.reason), row.queued.key if isinstance(wait.reason, KeyBlocked) else ""].append(row)
        for kind, alike in ((kind, of[each]) for kind in _HELD_BACK for each in of if each[0] is kind):
            heaviest = max(alike, key=lambda row: row.queued.weight or 0)
            condition = condition_of(planned.waits[heaviest.queued.execution].reason, process, now, {})
            # Of the other kinds the first request has this reason, and keeps back all behind it.
            number = are_queued(alike if kind in (Blocked, KeyBlocked, Stopped) else one.rows)
            severity, why = _HELD_BACK[kind]
            command = condition.get("ends_by") or next_step("explain", process=one.name)
            yield _queued(severity, one, f"process {one.name}: {number}: {condition['text']}", why, command)


def full_keys(account: Account, now: float) -> Iterator[Finding]:
    """Keys of which a request has waited long, and would start now if the key had no limit."""
    for process, one, planned in all_queues(account).planned:
        reasons = {name: wait.reason for name, wait in planned.waits.items()}
        of = defaultdict[str, list[QueuedRow]](list)
        for row in one.rows:
            if isinstance(reasons.get(row.queued.execution), KeyFull | Behind):
                of[row.queued.key].append(row)
        full = {reason.key: (name, reason) for name, reason in reasons.items() if isinstance(reason, KeyFull)}
        for since, key in sorted((min(row.sent for row in of[key]), key) for key in full)[:_MAX_KEYS]:
            if now - since <= _KEY_SECONDS:
                break
            lifted = replace(process, key_limits={**process.key_limits, key: MAX_SLOT_LIMIT})
            without, (first, reason) = replace(one, process=lifted).plan, full[key]
            if without and first in {start.execution for start in without.starts}:
                condition = condition_of(reason, process, now, {})
                what = f"process {one.name}: {are_queued(of[key])}: {condition['text']}"
                why = (
                    f"{process.room} of {count(process.slot_limit, 'slot')} are free. Raise the limit if it is too low."
                )
                command = next_step("process set-key-limit", one.name, ToFillIn("N"), key=key or None)
                yield Finding("warn", what, why, command, one.name, since)


def waiting(account: Account, now: float) -> Iterator[Finding]:
    """The first request of each queue that could start or must leave, if it still could when it was read again."""
    queues = all_queues(account).planned
    due = [(one.name, first) for _, one, planned in queues if (first := _due(one, planned))]
    seen = [(name, first) for name, first in due if now - first[0].sent > _DISPATCH_SECONDS]
    for name, before in seen[:_MAX_AGAIN]:
        one = queue_again(account, name)
        first = _due(one, one.plan) if one.plan else None
        if first and first[0].queued.execution == before[0].queued.execution:
            row, why = first
            ring_at = one.process.ring_at if isinstance(one.process, Process) else 0
            late = now - ring_at if ring_at else 0
            ring = f" A timed ring was due {duration(late)} ago, and has not come." * (late > _LATE_RING_SECONDS)
            yield Finding(
                "warn",
                f"process {name}: {row.request_id} waits for a dispatch",
                f"{why.capitalize()}. The janitor dispatches it within two minutes. If it does not, see the starter's "
                f"log.{ring}",
                "slotkeeper doctor --only event-sources",
                name,
                row.sent,
            )
    if len(seen) > _MAX_AGAIN:
        yield Finding("warn", f"{count(len(seen) - _MAX_AGAIN, 'more process', 'more processes')} may start a request")


def _due(one: ProcessQueue, planned: Plan) -> tuple[QueuedRow, str] | None:
    """The first queued request that a dispatch would start now, or end without a start, and which of them."""
    ends = {leave.execution: LEAVES[leave.end]["text"] for leave in planned.leaves}
    ends |= {start.execution: CAN_START["text"] for start in planned.starts}
    return next(((row, ends[row.queued.execution]) for row in one.rows if row.queued.execution in ends), None)


def deadlines(account: Account, now: float) -> Iterator[Finding]:
    for process, one, planned in all_queues(account).planned:
        ids = {each.queued.execution: each.request_id for each in one.rows}
        for row in one.rows:
            end, wait = row.queued.start_before, planned.waits.get(row.queued.execution)
            if end is None or wait is None or isinstance(wait.reason, Starting) or (left := end - now) <= 0:
                continue
            if process.paused or wait.ahead is None or left < _SOON_SECONDS:
                why = condition_of(wait.reason, process, now, ids)["text"]
                yield Finding(
                    "warn",
                    f"process {one.name}: {row.request_id} must start within {duration(left)}, before "
                    f"{local_time(end)}",
                    f"It waits: {why}. After that time it ends as too late.",
                    next_step("explain", row.request_id, process=one.name),
                    one.name,
                    row.sent,
                )


# --------------------------------------------------------------------------------------------------- holders and starts


def closed_holders(account: Account, now: float) -> Iterator[Finding]:
    after = int(account.stack.parameters["GraceSeconds"]) + JANITOR_SECONDS
    holders = sorted(
        (holder.since, process.name, name)
        for process in account.processes()[0]
        for name, holder in process.holders.items()
        if not holder.is_lease
    )
    statuses = account.statuses(name for _, _, name in holders)
    yield from _unchecked(len(holders) - len(statuses), len(holders), "holder")
    closed = [(process, name) for _, process, name in holders if statuses.get(name, "RUNNING") not in _OPEN]
    # Read again: it may have released its slot between the two reads.
    fresh = {process: account.control.slots.read(process) for process in dict(closed)}
    ids = account.request_ids(closed)
    for process, name in closed:
        seen = fresh[process]
        holder = seen.holders.get(name) if seen else None
        execution = account.execution(name)
        if seen is None or holder is None or (execution is None and now - holder.since <= after):
            continue
        ended = (execution and execution.stopped_at) or holder.since
        status = f"its execution is {execution.status}" if execution else "it has no execution"
        is_late = now - ended > after + seen.settle_seconds
        yield Finding(
            "bad" if is_late else "warn",
            f"process {process}: {ids.get(name, name)} holds a slot, but {status}",
            "The janitor should have released it: its log names the reason, such as work that has not ended."
            if is_late
            else f"The janitor releases it once its work has ended, after {duration(after)} at the latest.",
            next_step("holder release", name) if is_late else next_step("explain", name),
            process,
            ended,
        )


def _unchecked(number: int, of: int, noun: str) -> Iterator[Finding]:
    """That the account has not read the executions of all (`Account.statuses`)."""
    if number:
        why = "There are more executions than one answer reads: those that run, and some of the others."
        yield Finding("warn", f"{number:,} of {count(of, noun)} not checked", why)


def expired_leases(account: Account, now: float) -> Iterator[Finding]:
    for process in account.processes()[0]:
        for name, holder in process.holders.items():
            if holder.removable_from is not None and now - holder.removable_from > JANITOR_SECONDS:
                yield Finding(
                    "bad",
                    f"process {process.name}: lease {name} has ended, and holds a slot",
                    "The janitor should have removed it: see its log.",
                    next_step("holder release", name),
                    process.name,
                    holder.removable_from,
                )


def stranded(account: Account, now: float) -> Iterator[Finding]:
    """Started requests whose execution has ended, or never was, and that hold no slot."""
    after = int(account.stack.parameters["GraceSeconds"]) + JANITOR_SECONDS
    processes, errors = account.processes()
    held = {name for process in processes for name in process.holders}
    unread = {one.process for one in errors}
    started = [row for row in readings.open_rows(account).rows if row.state == "STARTED"]
    unheld = [row for row in started if row.execution not in held and row.process not in unread]
    statuses = account.statuses(row.execution for row in unheld)
    yield from _unchecked(len(unheld) - len(statuses), len(unheld), "started request")
    for one in unheld:
        if statuses.get(one.execution, "RUNNING") in _OPEN:
            continue
        row, execution = account.control.rows.row(one.process, one.execution), account.execution(one.execution)
        since = (execution and execution.stopped_at) or one.at
        if row is None or row.state != "STARTED" or now - since <= after:
            continue
        status = f"its execution ended {execution.status}" if execution else "it has no execution"
        yield Finding(
            "bad",
            f"process {one.process}: {one.request_id} is started, but {status}",
            "The janitor should have recorded how it ended: see its log. The command runs it again.",
            "slotkeeper stack reconcile",
            one.process,
            since,
        )


def unpublished(account: Account, now: float) -> Iterator[Finding]:
    of: defaultdict[str, list[readings.OpenRow]] = defaultdict(list)
    for row in readings.open_rows(account).rows:
        if row.state != "STARTED":
            of[row.process].append(row)
    for process, ended in of.items():
        oldest = min(ended, key=lambda row: row.at)
        if now - oldest.at > _LATE_END_SECONDS:
            yield Finding(
                "bad",
                f"process {process}: {count(len(ended), 'end')} not published, first of {oldest.request_id}",
                "Callers may still wait for their answers. See the logs of the function of endings and of the janitor.",
                "slotkeeper doctor --only event-sources",
                process,
                oldest.at,
            )


# ------------------------------------------------------------------------------------------------------------- failures


def failures(account: Account, _now: float) -> Iterator[Finding]:
    of: defaultdict[tuple[str, str], list[RequestRow]] = defaultdict(list)
    listed = readings.failures(account)
    for row in sorted(listed.rows, key=lambda row: (row.failed or 0, row.sent), reverse=True):
        code = row.code if row.state == "REJECTED" else ""
        of[row.process, f"{row.state} {code}"].append(row)
    known = {name for name, one in all_queues(account).of.items() if one.process}
    for number, ((process, _), failed) in enumerate(of.items()):
        match failed[0].state:
            case "FAILED" if number < _MAX_JUDGED and (always := _always(account, process, failed[0])):
                yield always
            case "FAILED":
                yield _ended(failed, "failed", f"The last one: {failed[0].code}: {_reason(failed[0])}")
            case "TOO_LATE":
                yield _ended(failed, "too late", "Their start_before had passed before they could start.")
            case _ if failed[0].code == "UnknownProcess" and process not in known:
                why = f"Process {process} does not exist. Once it does, redrive them: "
                redrive = next_step("failed redrive", process=process, code="UnknownProcess")
                yield _ended(failed, "rejected", why + redrive, add_command(process))
            case _:
                yield _ended(failed, "rejected", f"{failed[0].code}: {_reason(failed[0])}")


def _always(account: Account, process: str, row: RequestRow) -> Finding | None:
    """That all of the last requests of a process have failed, also those that were redriven since; None if not.

    Args:
        row: its last failure.
    """
    listed = readings.last_ended(account, process)
    ran = [row for row in listed.rows if row.started is not None and row.state in ("SUCCEEDED", "FAILED", "REDRIVEN")]
    last = list(takewhile(lambda each: each.state != "SUCCEEDED", ran))
    if len(last) < ALWAYS:
        return None
    more = "more than " * (listed.is_cut and len(last) == len(ran))
    what = f"{more}{len(last):,} of {len(last):,}" if len(last) == len(ran) else f"its last {len(last):,} requests"
    return Finding(
        "bad",
        f"process {process} failed {what}",
        f"The last one: {row.code}: {_reason(row)}. A redrive fails alike until the cause is fixed.",
        next_step("explain", row.request_id, process=process),
        process,
        last[-1].ended,
    )


def _ended(rows: Sequence[RequestRow], how: str, why: str, command: str | None = None) -> Finding:
    process, code = rows[0].process, rows[0].code
    what = f"process {process}: {count(len(rows), 'request')} {how} in the last day"
    shown = command or next_step("failed list", process=process, code=None if how == "failed" else code)
    return Finding("warn", what, why, shown, process, min(row.failed or 0 for row in rows))


def _reason(row: RequestRow) -> str:
    """Why a request failed, on one line, with its end."""
    return cut(hide_tokens(row.reason), _REASON) or "its reason is shown by the command"


_urgent = partial(HealthCheck, is_urgent=True)
_of_processes = partial(HealthCheck, of_processes=True)
CHECKS = (
    _urgent("processes", "no item of SlotTable is malformed", malformed),
    _urgent("removed-processes", "no request of a removed process is queued", removed),
    _urgent("failures", "no request failed, was rejected or too late in the last day", failures),
    _urgent("held-back", "each queued request waits for slots alone", held_back, of_processes=True),
    _urgent("drift", "slots_in_use of each process is the sum of its holders' weights", drift, of_processes=True),
    _urgent("holders", "no holder's execution has ended", closed_holders, of_processes=True),
    _urgent("leases", "no lease has expired", expired_leases, of_processes=True),
    _urgent("started", "each started request has a running execution, or a slot", stranded, of_processes=True),
    _urgent("published", "the end of each request is published", unpublished),
    _urgent("waiting", "no request is queued although it can start", waiting, of_processes=True),
    _urgent("deadlines", "each queued request can start before its start_before", deadlines, of_processes=True),
    _urgent("rows", "each row that was read is as documented, and all were read", rows),
    _of_processes("full-keys", "no request waits long for its key's limit alone", full_keys),
    _of_processes("paused", "each process without queued requests admits some", idle),
)
