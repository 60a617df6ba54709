"""Histories of work for the tests of the judge: correct ones, drawn by a simulation, and one small one to change."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from slotkeeper.slots.process import Process
from slotkeeper.slots.rate import Rate, after_start
from slotkeeper.slots.request import execution_name
from slotkeeper_cli.audit.work_history import (
    CHILD,
    GLUE_RUN,
    Attempt,
    AuditBounds,
    ItemVersion,
    KeptRequest,
    Sending,
    WholeRun,
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


def attempt(
    request_id: str, started: float, seconds: float | None = 10.0, status: str = "", **fields: object
) -> Attempt:
    """An execution that starts some seconds after START."""
    stopped = None if seconds is None else START + started + seconds
    status = status or ("RUNNING" if seconds is None else "SUCCEEDED")
    number = int(str(fields.get("number", 1)))
    made = Attempt(name(request_id, number), status, START + started, stopped, request_id, 1, "normal", 1)
    return replace(made, **fields)  # type: ignore[arg-type]


def work(of: Attempt, kind: str = GLUE_RUN, before: float = 0.2, after: float = 0.3) -> WorkInterval:
    """What an execution ran, from some time after its start to some time before its end."""
    ended = None if of.stopped is None else of.stopped - after
    return WorkInterval(of.execution, kind, of.started + before, ended, of.status == "SUCCEEDED")


def history(attempts: Sequence[Attempt], **fields: object) -> WorkHistory:
    """An hour of the process `sample`."""
    made = WorkHistory(
        START - 60,
        START + 3600,
        START + 3600,
        {"sample": process()},
        attempts,
        [work(each) for each in attempts],
        queued=0,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def clean() -> WorkHistory:
    """Five requests through two slots: one was kept, one was aborted and kept, one still runs."""
    attempts = [
        attempt("a", 0, 10),
        attempt("b", 1, 12, "FAILED", error="RequestFailed"),
        attempt("c", 10.5, 100, "ABORTED"),
        attempt("d", 13.5, 50),
        attempt("e", 3590, None),
    ]
    sendings = [Sending(each.execution, START - 5 + n / 10, n) for n, each in enumerate(attempts[:4])]
    kept = [
        KeptRequest(name("b"), "FailedRequestQueue", START + 13, "States.TaskFailed", "not a number", request_id="b"),
        KeptRequest(name("c"), "FailedRequestQueue", START + 130, "ABORTED", "no cause given"),
    ]
    sendings.append(Sending(name("e"), START + 3589.5, 9))
    return history(attempts, sendings=sendings, kept=kept)


BOUNDS = AuditBounds(free_slot=5.0, disturbed=60.0, grace=2.0)


def whole() -> WorkHistory:
    """A run of which all is known: the requests of `clean` that have ended, a malformed message, and a heavy request.

    The heavy request is above the limit, until it is raised from 2 to 3 at 130.
    """
    attempts = [*clean().attempts[:4], attempt("h", 130.2, 9, priority="high", weight=3)]
    outcomes = ["SUCCEEDED", "FAILED", "FAILED", "SUCCEEDED"]
    sent = [replace(each, outcome=end) for each, end in zip(clean().sendings, outcomes, strict=False)]
    sent.append(Sending(name("bad"), START + 1, 5, message_id="m-bad", outcome="InvalidRequest"))
    sent.append(Sending(name("h"), START + 90, 6, "high", 3, outcome="SUCCEEDED"))
    dead = KeptRequest("", "RequestDeadLetterQueue", START + 1.5, "InvalidRequest", "not JSON", "m-bad")
    run = WholeRun({"sample": versions_of(attempts)}, janitor_runs=[])
    return history(
        attempts,
        processes={"sample": process(3)},
        sendings=[*sent[:4], *sent[-2:]],
        kept=[*clean().kept, dead],
        run=run,
        bounds=BOUNDS,
    )


def versions_of(attempts: Sequence[Attempt], raised: float = 130.0) -> list[ItemVersion]:
    """What these executions write: reserved before the start, confirmed after it, freed before the end, by 0.1 s."""
    changes: list[tuple[float, str, int, bool]] = [(START + raised, "", 1, False)]
    for each in attempts:
        weight = each.weight or 1
        changes.append((each.started - 0.1, each.execution, weight, False))
        changes.append((each.started + 0.1, each.execution, weight, True))
        changes.append(((each.stopped or 0.0) - 0.1, each.execution, 0, False))
    limit, holders, confirmed = LIMIT, dict[str, int](), set[str]()
    made = [ItemVersion(START - 60, LIMIT, {})]
    for at, execution, weight, is_confirmed in sorted(changes):
        if not execution:
            limit += weight
        elif weight:
            holders[execution] = weight
            confirmed |= {execution} if is_confirmed else set()
        else:
            del holders[execution]
        made.append(ItemVersion(at, limit, dict(holders), frozenset(confirmed)))
    return made


# -------------------------------------------------------------------------------------------------- correct simulations


Rounding = Callable[[float], float]


def _exact(at: float) -> float:
    return at


ROUNDINGS: tuple[tuple[Rounding, ...], ...] = (
    (_exact,),
    (math.floor,),
    (math.floor, math.ceil),
    (_exact, math.floor, math.ceil),
)


@st.composite
def correct_histories(draw: st.DrawFn) -> WorkHistory:
    """What a correct Slotkeeper leaves in AWS's records: requests in order through slots, with weights and failures.

    With a rate, requests wait while slots are free. Of a message all is known, or no sequence number, or only the line
    of the starter's log.

    Glue's times are exact, or rounded down, up or to the nearest second, for each time anew.
    """
    limit = draw(st.integers(1, 5))
    seconds = st.floats(0.05, 8.0)
    rounding = draw(st.sampled_from(ROUNDINGS))
    rate = draw(st.sampled_from([None, None, Rate(1, 3600), Rate(20, 3600, 3)]))
    logged, next_start = [], 0
    free_at: list[tuple[float, int]] = []
    in_use, now, sent = 0, START, START
    attempts, works, sendings, kept = [], list[WorkInterval](), [], []
    for number in range(draw(st.integers(0, 25))):
        weight = draw(st.integers(1, limit))
        sent += draw(st.sampled_from([0.0, 0.01, 3.0]))
        now = max(now, sent) + draw(st.floats(0.001, 0.3))
        while in_use + weight > limit or (free_at and free_at[0][0] <= now):
            freed, of = heapq.heappop(free_at)
            now, in_use = max(now, freed + draw(st.floats(0.001, 0.3))), in_use - of
        if rate:
            now = max(now, (next_start - rate.lead) / 1000)
            next_start = after_start(rate, next_start, now)
        begun, tail = now + draw(st.floats(0.0, 0.5)), draw(st.floats(0.0, 1.0))
        ended = begun + draw(seconds)
        freed, in_use = ended + draw(st.floats(0.001, 0.2)), in_use + weight
        heapq.heappush(free_at, (freed, weight))
        status = draw(st.sampled_from(["SUCCEEDED", "SUCCEEDED", "FAILED"]))
        error = "" if status == "SUCCEEDED" else "RequestFailed"
        one = Attempt(name(str(number)), status, now, freed + tail, str(number), 1, "normal", weight, error)
        attempts.append(one)
        kind = draw(st.sampled_from([GLUE_RUN, CHILD])) if number else GLUE_RUN
        start, end = ((draw(st.sampled_from(rounding)) if kind == GLUE_RUN else _exact)(at) for at in (begun, ended))
        works.append(WorkInterval(one.execution, kind, start, end, status == "SUCCEEDED"))
        message = Sending(one.execution, sent, number, weight=weight)
        known = draw(st.sampled_from([message, replace(message, sequence=None), None]))
        (logged if known is None else sendings).append(known or message)
        if error:
            kept.append(KeptRequest(one.execution, "FailedRequestQueue", freed))
    end = max([START, *(each.stopped or 0.0 for each in attempts)]) + 1
    processes = {"sample": process(limit, rate=rate)}
    made = WorkHistory(START - 1, end, end, processes, attempts, works, sendings, logged, kept, queued=0)
    return replace(made, bounds=AuditBounds(free_slot=3.0))
