"""Histories of work for the tests of the judge: a small correct one, to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slotkeeper.slots.process import Process
from slotkeeper.slots.queued import place_of
from slotkeeper.slots.request import PRIORITIES, Priority, execution_name
from slotkeeper.slots.request_table import State, granted_as
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.audit.work_history import (
    GLUE_RUN,
    Attempt,
    WorkHistory,
    WorkInterval,
)

# Not a whole second, as times of Step Functions are.
START = 1_790_000_000.25
LIMIT = 2


def name(request_id: str, attempt: int = 1) -> str:
    return execution_name("sample", request_id, attempt)


def process(limit: int = LIMIT, **fields: object) -> Process:
    return replace(Process("sample", limit, 0, {}, False, "job"), **fields)  # type: ignore[arg-type]


def row(
    request_id: str, sent: float, state: State = "QUEUED", priority: Priority = "normal", **fields: object
) -> RequestRow:
    """The row of a request that was sent some seconds after START. A queued one has its place."""
    number = int(str(fields.get("attempt", 1)))
    place = place_of(PRIORITIES.index(priority), START + sent, "0", str(fields.pop("key", "")))
    made = RequestRow("sample", name(request_id, number), state, request_id, number, priority, START + sent)
    return replace(made, placed=place, place=place if state == "QUEUED" else "", **fields)  # type: ignore[arg-type]


def attempt(
    request_id: str, started: float, seconds: float | None = 10.0, status: str = "", **fields: object
) -> Attempt:
    """An execution that starts some seconds after START, with its row. Its request was sent 0.4 s before.

    Args:
        fields: of the execution, `sent` in seconds after START, and of its row.
    """
    stopped = None if seconds is None else START + started + seconds
    status = status or ("RUNNING" if seconds is None else "SUCCEEDED")
    state: State = "STARTED" if seconds is None else "SUCCEEDED" if status == "SUCCEEDED" else "FAILED"
    own = {
        "state": state,
        "sent": started - 0.4,
        "started": START + started + 0.02,
        "ended": None if stopped is None else stopped - 0.1,
        "granted": "recorded",
        **fields,
    }
    sent = float(str(own.pop("sent")))
    made = row(request_id, sent, **own)  # type: ignore[arg-type]
    return Attempt(made.execution, status, START + started, stopped, made)


def work(of: Attempt, kind: str = GLUE_RUN, before: float = 0.2, after: float = 0.3) -> WorkInterval:
    """The work of an execution, from some time after its start to some time before its end."""
    ended = None if of.stopped is None else of.stopped - after
    return WorkInterval(of.execution, kind, of.started + before, ended, of.status == "SUCCEEDED")


def history(attempts: Sequence[Attempt], *others: RequestRow, **fields: object) -> WorkHistory:
    """An hour of the process `sample`, with the rows of its executions and others.

    `grants` of the process has changed with each recorded grant and put back, in the order of their times, and not
    otherwise. A row's `put_back` is given in seconds after START.
    """
    rows = [*(each.row for each in attempts if each.row), *others]
    times = {each.execution: each.started or 0.0 for each in rows if each.granted}
    changes = sorted({*times.values(), *(START + each.put_back for each in rows if each.put_back)})
    numbers = {at: round(1000 * START) + number for number, at in enumerate(changes)}
    numbered = {
        each.execution: replace(
            each,
            granted=granted_as(numbers[times[each.execution]], at) if each.granted else "",
            put_back=numbers[START + each.put_back] if each.put_back else None,
        )
        for at, each in enumerate(rows)
    }
    made = WorkHistory(
        START - 60,
        START + 3600,
        START + 3600,
        {"sample": process()},
        [replace(each, row=numbered[each.row.execution] if each.row else None) for each in attempts],
        [work(each) for each in attempts],
        [*numbered.values()],
    )
    made = replace(made, **fields)  # type: ignore[arg-type]
    last = max(numbers.values(), default=0)
    return replace(made, processes={name: replace(each, grants=last) for name, each in made.processes.items()})


def changed(of: WorkHistory, request_id: str, **fields: object) -> WorkHistory:
    """The history with another row of a request's first attempt."""
    rows = [
        replace(each, **fields) if each.execution == name(request_id) else each  # type: ignore[arg-type]
        for each in of.rows
    ]
    by_execution = {each.execution: each for each in rows}
    return replace(
        of, rows=rows, attempts=[replace(each, row=by_execution.get(each.execution)) for each in of.attempts]
    )


def clean() -> WorkHistory:
    """Five requests through two slots: one failed, one was aborted, one still runs."""
    failed = {"code": "States.TaskFailed", "reason": "not a number"}
    return history(
        [
            attempt("a", 0, 10, sent=-5),
            attempt("b", 1, 12, "FAILED", sent=-4.9, **failed),
            attempt("c", 10.5, 100, "ABORTED", sent=-4.8, code="ABORTED", reason="no cause given"),
            attempt("d", 13.5, 50, sent=-4.7),
            attempt("e", 3590, None, sent=3589.5),
        ]
    )
