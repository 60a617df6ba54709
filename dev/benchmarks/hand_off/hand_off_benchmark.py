"""Hand-off: the wake against polling every 5 and 30 s, on the embedded AWS with the deployed stack.

The designs have the engine to themselves, one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from dev.benchmarks.outcome import Goal, Grid, Notify, Outcome
from dev.emulator.aws import EmbeddedAws
from dev.scenarios.runner.scenario import CannotContinue
from slotkeeper_cli.audit.intervals import percentile

from .hand_off_designs import JOB, JOB_SECONDS, WAKE, WAKE_CHILDREN, BenchmarkStack, Variant
from .hand_off_figures import Window, expected, read_executions, read_invocations

TITLE = "Hand-off: from a release to the next start"
MINUTES = 5
MEDIAN, P99, USED, INVOCATIONS = 1.0, 2.0, 0.95, 2.2
# The janitor does not run during a window: all wakes are the workflow's.
PARAMETERS = {
    "JanitorSchedule": "rate(1 day)",
    "MoreGlueJobArns": f"arn:aws:glue:us-east-1:000000000000:job/{JOB}",
    "MoreStateMachineArns": "arn:aws:states:us-east-1:000000000000:stateMachine:child",
}
LATE = 20.0  # seconds to wait for a poll that is due


@dataclass(frozen=True)
class Plan:
    """`wake_seconds`: of a wake's window. `polls`: period -> whole periods of its window."""

    limit: int
    wake_seconds: float
    polls: Mapping[int, int]


FULL = Plan(limit=4, wake_seconds=60.0, polls={5: 8, 30: 3})
SMALL = Plan(limit=2, wake_seconds=4.0, polls={2: 1, 7: 1})


def measure(folder: Path, notify: Notify, *, small: bool = False) -> Outcome:
    """Deploy, measure, read the records and judge. Raises EngineError, DeploymentError and CannotContinue."""
    plan = SMALL if small else FULL
    notify("start and deploy")
    with EmbeddedAws.start(folder / "engine") as aws:
        aws.deploy(PARAMETERS)
        stack = BenchmarkStack(aws, plan.limit)
        variants = [stack.deployed(), stack.with_children(), *map(stack.polling, plan.polls)]
        figures = {}
        for variant in variants:
            notify(f"warm up {variant.name}")
            warm_up(stack, variant)
            notify(f"measure {variant.name}")
            sent = observe(stack, variant, plan)
            figures[variant.name] = read(stack, variant, sent)
    return outcome(figures, plan.limit)


def warm_up(stack: BenchmarkStack, variant: Variant) -> None:
    """As many requests as slots, so that none is refused: the first of each operation is slower."""
    enough = stack.admitted(variant) + stack.limit
    stack.send(variant, stack.limit, f"warm-{variant.name}")
    _wait_for(
        lambda: stack.admitted(variant) >= enough and not stack.in_use(variant),
        LATE,
        f"the first requests of {variant.name} do not end",
    )


def observe(stack: BenchmarkStack, variant: Variant, plan: Plan) -> float:
    """Fill the variant's queue with more than it can use, and wait. Returns when.

    Raises CannotContinue if the queue became empty, or an expected poll did not happen.
    """
    before, sent = stack.admitted(variant), time.time()
    polls = plan.polls[variant.period] if variant.period else 0
    seconds = variant.period * polls if variant.period else plan.wake_seconds
    stack.send(variant, round(plan.limit * (polls + 2 + plan.wake_seconds / JOB_SECONDS)), variant.name)
    time.sleep(seconds)
    if variant.period:
        _wait_for(
            lambda: stack.admitted(variant) >= before + plan.limit * (polls + 1),
            LATE + polls,  # MiniStack notices a second late that a hidden message is visible again
            f"{variant.name} has not polled {polls} times: see the engine's log",
        )
    if not stack.queued(variant):
        raise CannotContinue(f"the queue of {variant.name} became empty: its idle slots would show nothing")
    stack.clear(variant)
    return sent


def read(stack: BenchmarkStack, variant: Variant, sent: float) -> dict[str, Any]:
    """A variant's figures. Raises CannotContinue for records without a hand-off."""
    executions = [e for e in read_executions(stack.stepfunctions, variant.workflow_arn) if e.started >= sent]
    window = Window(executions, sent, variant.period, stack.limit)
    gaps = sorted(handoff.seconds for handoff in window.handoffs())
    if not gaps:
        raise CannotContinue(f"{variant.name} handed off no slot: there is nothing to measure")
    held = median(e.release_exited - e.started for e in executions if e.release_exited is not None)
    return {
        "period": variant.period,
        "hand_offs": gaps,
        "median": median(gaps),
        "p99": percentile(gaps, 0.99),
        "slots_used": window.slots_used(),
        "invocations": window.invocations_per_request(read_invocations(stack.logs, stack.log_group(variant))),
        "expected": expected(variant.period, held, stack.limit) if variant.period else None,
    }


def _wait_for(condition: Callable[[], bool], seconds: float, otherwise: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise CannotContinue(otherwise)
        time.sleep(0.2)


def outcome(figures: dict[str, dict[str, Any]], limit: int) -> Outcome:
    labels = {WAKE: "wake", WAKE_CHILDREN: "wake, state machines"}
    rows = []
    for name, each in figures.items():
        rows.append((labels.get(name, f"polling every {each['period']} s"), *_cells(each), _seconds(each["p99"])))
        if each["expected"]:
            rows.append(("  computed", *_cells(each["expected"]), "-"))
    grid = Grid(
        "From a release to the next start, slot time in use, the starter's invocations per started request",
        ("design", "median", "slots used", "invocations", "p99"),
        rows,
        f"{limit} slots, work of {JOB_SECONDS:g} s, an endless queue. Computed: from the period and the time for which "
        "a slot is held. The wake's milliseconds are the engine's, which takes almost no time between states; the "
        "seconds of polling are not. In a hand-off of 0 s the next start was recorded before the end of the release.",
    )
    return Outcome([grid], goals(figures), figures)


def _cells(figures: Mapping[str, Any]) -> tuple[str, str, str]:
    return _seconds(figures["median"]), f"{figures['slots_used']:.1%}", f"{figures['invocations']:.2f}"


def _seconds(value: float) -> str:
    """Milliseconds below a second."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def goals(figures: Mapping[str, Mapping[str, Any]]) -> list[Goal]:
    wake, children = figures[WAKE], figures[WAKE_CHILDREN]
    used, invocations = wake["slots_used"], wake["invocations"]
    aim = f"median under {MEDIAN:g} s"
    return [
        Goal(aim, _seconds(wake["median"]), wake["median"] < MEDIAN),
        Goal(f"p99 under {P99:g} s", _seconds(wake["p99"]), wake["p99"] < P99),
        Goal(f"{aim} with state machines", _seconds(children["median"]), children["median"] < MEDIAN),
        Goal(f"slots used at least {USED:.0%} with {JOB_SECONDS:g} s jobs", f"{used:.1%}", used >= USED),
        Goal(f"at most {INVOCATIONS:g} invocations per request", f"{invocations:.2f}", invocations <= INVOCATIONS),
    ]
