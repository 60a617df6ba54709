"""The state of a stack: its processes with holders and queues, as `slotkeeper status` and the console show it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from slotkeeper.slots.process import Process
from slotkeeper.slots.targets import kind_of
from slotkeeper_cli.account import Account
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.holders import holder_as_dict, target_of
from slotkeeper_cli.key_use import key_use
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.process_queue import ProcessQueue, queues, read_queue
from slotkeeper_cli.stack_connection import FLOWS, message_counts
from slotkeeper_cli.target_checks import ShownWork, target_in
from slotkeeper_cli.unread import Search

MAX_BLOCKED = 10  # requests above the limit that are named
MAX_DETAILED = 100  # holders of one process whose request and work are read: the oldest
_KEYS = (
    *("name", "slot_limit", "slots_in_use", "default_weight", "paused", "has_drifted", "target", "timeout_minutes"),
    "settle_seconds",
)


def status(account: Account, process: str | None = None) -> dict[str, Any]:
    """The state of a stack, as `status --json` prints it.

    Of all processes it makes some 30 calls: queues are read by one scan, of at most ten pages. If they are longer, or a
    scan is not permitted, it reads a page of each process's queue. Of one process it reads the whole queue, and what
    its holders run: at most 300 calls, most for executions that have ended.

    Raises:
        NotFound: there is no such process.
        CommandFailed: its item is malformed.
    """
    now, search, stack = time.time(), Search(), account.stack
    shown, malformed = ([account.process(process)], []) if process else account.processes()
    queued = _queued(account, search, shown, now, is_whole=process is not None)
    processes = [_as_dict(one, queue, now) for one, queue in zip(shown, queued, strict=True)]
    if process:
        processes[0]["holders"] = _details(account, search, shown[0], now)
    sources = ("RequestQueue", "DispatchQueue")
    event_source = [each for queue in sources for each in account.stopped_event_source(search, queue)]
    return {
        "stack": stack.name,
        "region": stack.region,
        "process": process,
        "at": iso(now),
        "processes": processes,
        "malformed": [str(each) for each in malformed],
        "event_source": event_source,
        "queues": {queue: message_counts(attributes) for queue, attributes in account.queues().items()},
        "not_read": [each.as_dict() for each in search.not_read],
        "not_deployed": [flow.name for flow in stack.not_deployed],
    }


def _as_dict(process: Process, queue: ProcessQueue | None, now: float) -> dict[str, Any]:
    holders = sorted(process.holders.items(), key=lambda entry: entry[1].since)
    return {key: getattr(process, key) for key in _KEYS} | {
        "rate": process.rate and str(process.rate),
        "holders": [holder_as_dict(name, holder, None, now) for name, holder in holders],
        "queue": _queue_as_dict(queue),
        "keys": key_use(process, queue.rows if queue else None),
    }


def _queued(
    account: Account, search: Search, processes: Sequence[Process], now: float, is_whole: bool
) -> list[ProcessQueue | None]:
    """The queues of processes; None for one that could not be read. `is_whole`: all pages of each."""
    scanned = None if is_whole else Search().try_read("RequestTable", lambda: queues(account), None)
    if scanned is None or scanned.listed.is_cut:
        pages = {} if is_whole else {"max_pages": 1}
        return in_parallel(
            lambda one: search.try_read("RequestTable", lambda: read_queue(account, search, one, now, **pages), None),
            processes,
        )
    search.note_malformed_rows(scanned.listed.malformed)
    # A console keeps readings: the processes may be newer than the queues.
    known = [scanned.of.get(one.name) for one in processes]
    return [
        replace(queue, process=one, now=now) if queue else read_queue(account, search, one, now)
        for one, queue in zip(processes, known, strict=True)
    ]


def _queue_as_dict(queue: ProcessQueue | None) -> dict[str, Any]:
    """The queue of a process as JSON shows it: numbers, the next request, and those that no free slot could start.

    Without a queue, as if it could not be read, `queued` is None.
    """
    requests = queue.requests if queue else []
    blocked = [each for each in requests if any(one["condition"] in ("limit", "key limit") for one in each["reasons"])]
    return {
        "queued": len(requests) if queue else None,
        "is_cut": bool(queue and queue.is_cut),
        "oldest_seconds": max((each["age_seconds"] for each in requests), default=None),
        "first": next((each for each in requests if each["position"] == 1), None),
        "blocked": [each for each in blocked if each["position"] is None][:MAX_BLOCKED],
    }


def _details(account: Account, search: Search, process: Process, now: float) -> list[dict[str, Any]]:
    """The holders of a process, oldest first, with their work."""
    every = sorted(process.holders.items(), key=lambda entry: entry[1].since)
    executions = [name for name, holder in every if not holder.is_lease]
    named = executions[:MAX_DETAILED]
    if more := len(executions) - len(named):
        search.note_unread("holders", f"the requests and the work of the {more:,} youngest holders")
    nothing: Mapping[str, str] = {}
    pairs = [(process.name, name) for name in named]
    ids = search.try_read("RequestTable", lambda: account.request_ids(pairs), nothing)
    statuses = search.try_read("executions of the workflow", lambda: account.statuses(executions), nothing)
    work = _work(account, search, process, named)
    details = []
    for name, holder in every:
        shown = holder_as_dict(name, holder, ids.get(name), now)
        if not holder.is_lease:
            target = target_of(process, holder)
            shown |= {"execution_status": statuses.get(name), "target": target}
            shown |= {"glue_run": None, "child": None, kind_of(target).work_key: work.get(name)}
            shown |= {"link": account.stack.execution_link(name)}
        details.append(shown)
    return details


def _work(account: Account, search: Search, process: Process, named: list[str]) -> dict[str, ShownWork]:
    """The work of these holders, by execution. Holders may have an earlier target of the process."""
    since: dict[str, dict[str, int]] = {}
    for name in named:
        holder = process.holders[name]
        since.setdefault(target_of(process, holder), {})[name] = holder.since
    found: dict[str, ShownWork] = {}
    for target, holders in since.items():
        read = target_in(account.stack, target).works
        found |= search.try_read(f"the runs of {target}", lambda read=read, of=holders: read(of), {})  # type: ignore[misc]
    return found


def not_deployed_text(flows: Iterable[str]) -> str:
    """The flows without which a stack was deployed, on one line; empty if it has all flows."""
    parameters = {flow.name: flow.parameter for flow in FLOWS}
    named = ", ".join(f"{name} (deploy with {parameters[name]})" for name in flows)
    return f"Not deployed: {named}." if named else ""
