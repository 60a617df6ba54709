"""How fast requests start and callers are answered, on the embedded AWS with the deployed stack, one part at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from dev.benchmarks.outcome import Goal, Grid, Notify, Outcome
from dev.scenarios.runner.scenario import CannotContinue
from slotkeeper_cli.audit.intervals import percentile

from .benchmark_stack import WARM, BenchmarkStack, wait_for
from .hand_off_figures import gaps, out_of_order, read_executions, starts_a_second

TITLE = "How fast requests start"
MINUTES = 2
WORK_MS = 300
MEDIAN, P99, STARTS, ANSWER = 1.0, 2.0, 30.0, 1.0
BURST_AFTER = 6.0  # seconds, and half a second for each slot: until the requests behind the first ones are queued


@dataclass(frozen=True)
class Plan:
    """The number of slots and of requests of each part. `burst`: slots that become free in one instant."""

    hand_offs: tuple[int, int]
    backlog: tuple[int, int]
    callers: tuple[int, int]
    free: int
    burst: int


FULL = Plan(hand_offs=(3, 200), backlog=(50, 300), callers=(3, 60), free=30, burst=50)
SMALL = Plan(hand_offs=(2, 6), backlog=(4, 12), callers=(2, 4), free=2, burst=3)


def measure(folder: Path, notify: Notify, *, small: bool = False) -> Outcome:
    """Deploy, measure and read the records. Raises EngineError, DeploymentError and CannotContinue."""
    plan = SMALL if small else FULL
    notify("start and deploy")
    with BenchmarkStack.start(folder / "engine") as stack:
        figures: dict[str, Any] = {}
        for part in (hand_off, backlog, answers, free_slot, burst):
            notify(f"measure {part.__name__}")
            figures |= part(stack, plan)
    return outcome(figures, plan)


def hand_off(stack: BenchmarkStack, plan: Plan) -> dict[str, Any]:
    """From a release to the next start, while requests wait."""
    limit, count = plan.hand_offs
    stack.process("hand-off", limit)
    sent = time.time()
    stack.send("hand-off", [f"r{number}" for number in range(count)], {"ms": WORK_MS})
    stack.wait_for_ends("hand-off", count)
    invoked = sum(at >= sent for at in stack.invocations()) / count
    executions = read_executions(stack.stepfunctions, stack.executions("hand-off"))
    found = gaps([each for each in executions if each.started >= sent], limit)
    return {"hand_offs": found, "median": median(found), "p99": percentile(found, 0.99), "invocations_waiting": invoked}


def backlog(stack: BenchmarkStack, plan: Plan) -> dict[str, Any]:
    """Starts a second of a queue with more requests than slots, after the limit was raised from 0."""
    limit, count = plan.backlog
    stack.process("backlog", limit)
    stack.set_limit("backlog", 0)
    stack.send("backlog", [f"r{number}" for number in range(count)], {"ms": WORK_MS})
    stack.wait_until_queued("backlog", count)
    opened = time.time()
    stack.set_limit("backlog", limit)
    stack.wait_for_ends("backlog", count)
    starts = sorted(each["startDate"].timestamp() for each in stack.executions("backlog"))
    return {
        "starts_a_second": starts_a_second([start for start in starts if start >= opened]),
        "invocations_backlog": sum(at >= opened for at in stack.invocations()) / count,
    }


def answers(stack: BenchmarkStack, plan: Plan) -> dict[str, Any]:
    """From the end of a request's work to the end of the execution that waits for its answer."""
    limit, count = plan.callers
    stack.process("answers", limit)
    ids = [f"r{number}" for number in range(count)]
    callers = stack.call("answers", ids, {"ms": WORK_MS})
    wait_for(lambda: all(map(stack.stopped, callers)), "the callers are not answered")
    work = stack.work_ended("answers")
    waits = [(stack.stopped(caller) or 0.0) - work[name] for caller, name in zip(callers, ids, strict=True)]
    return {"answer": median(waits), "answer_p99": percentile(waits, 0.99)}


def free_slot(stack: BenchmarkStack, plan: Plan) -> dict[str, Any]:
    """From the sending of a request that finds a free slot to its start. Each is sent after the end of the one before.

    Without the call that sends it.
    """
    stack.process("free", 1)
    invoked, waits = len(stack.invocations()), []
    for number in range(plan.free):
        began = time.time()
        stack.send("free", [f"r{number}"], {"ms": 0})
        sent = time.time()
        stack.wait_for_ends("free", number + 1)
        newest = max(each["startDate"].timestamp() for each in stack.executions("free"))
        waits.append(newest - (began + sent) / 2)
    wait_for(lambda: len(stack.invocations()) >= invoked + 2 * plan.free, "the rings of free slots were not dispatched")
    return {
        "free_slot": median(waits),
        "free_slot_p90": percentile(waits, 0.9),
        "invocations_free": (len(stack.invocations()) - invoked) / plan.free,
    }


def burst(stack: BenchmarkStack, plan: Plan) -> dict[str, Any]:
    """Grants out of order after all slots became free in one instant. Urgent requests were sent last."""
    count = plan.burst
    stack.process("burst", count)
    until = time.time() + BURST_AFTER + count / 2
    stack.send("burst", [f"first{n}" for n in range(count)], {"until": datetime.fromtimestamp(until, UTC).isoformat()})
    wait_for(lambda: len(stack.executions("burst")) == WARM + count, "the slots are not taken")
    for priority in ("low", "normal", "high"):
        stack.send("burst", [f"{priority}{n}" for n in range(count)], {"ms": WORK_MS}, priority)
    stack.wait_until_queued("burst", 3 * count)
    if time.time() > until:
        raise CannotContinue("the requests were not queued before the slots became free: the machine is too busy")
    stack.wait_for_ends("burst", 4 * count)
    rows = [row for row in stack.rows("burst") if row["request_id"]["S"].rstrip("0123456789") not in ("warm", "first")]
    return {"out_of_order": out_of_order(rows), "burst_grants": sum("granted" in row for row in rows)}


def outcome(figures: dict[str, Any], plan: Plan) -> Outcome:
    (slots, requests), (backlog_slots, backlog_requests) = plan.hand_offs, plan.backlog
    callers_slots, callers = plan.callers
    rows = [
        (
            f"from a release to the next start, {slots} slots, {requests} requests: median, p99",
            f"{_ms(figures['median'])}, {_ms(figures['p99'])}",
        ),
        (
            f"starts a second of {backlog_requests} queued requests, {backlog_slots} slots",
            f"{figures['starts_a_second']:.1f}",
        ),
        (
            f"from the end of the work to its caller's answer, {callers_slots} slots, {callers} callers: median, p99",
            f"{_ms(figures['answer'])}, {_ms(figures['answer_p99'])}",
        ),
        (
            "from sending to the start with a free slot: median, p90",
            f"{_ms(figures['free_slot'])}, {_ms(figures['free_slot_p90'])}",
        ),
        (
            f"invocations of the starter for each request: free slot; {slots} slots; {backlog_slots} slots",
            "; ".join(f"{figures[f'invocations_{name}']:.2f}" for name in ("free", "waiting", "backlog")),
        ),
        (
            f"grants out of order, {plan.burst} slots freed in one instant, {figures['burst_grants']} requests",
            f"{figures['out_of_order']}",
        ),
    ]
    caption = f"Work of {WORK_MS} ms. The milliseconds are the engine's, which takes almost no time between states."
    return Outcome([Grid("How fast requests start", ("", "measured"), rows, caption)], goals(figures), figures)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def goals(figures: dict[str, Any]) -> list[Goal]:
    names = "median", "p99", "starts_a_second", "out_of_order", "answer"
    wait, p99, starts, wrong, answer = (figures[name] for name in names)
    return [
        Goal(f"hand-off, median under {_ms(MEDIAN)}", _ms(wait), wait < MEDIAN),
        Goal(f"hand-off, p99 under {_ms(P99)}", _ms(p99), p99 < P99),
        Goal(f"at least {STARTS:g} starts a second of a backlog", f"{starts:.1f}", starts >= STARTS),
        Goal("no grant out of order", f"{wrong}", wrong == 0),
        Goal(f"a caller's answer, median under {_ms(ANSWER)}", _ms(answer), answer < ANSWER),
    ]
