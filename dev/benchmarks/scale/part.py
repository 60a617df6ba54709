"""Part "scale": do calls, time and dollars grow with the requests alone?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import linear_regression
from typing import Any

from dev.benchmarks.outcome import Goal, Outcome, Tell
from dev.benchmarks.scale import dollars, pictures, tables
from dev.benchmarks.scale.drive import Load
from dev.benchmarks.scale.rounds import Scene
from dev.benchmarks.scale.runs import run
from tests.simulation.janitor_scenes import TROUBLES
from tests.simulation.slots_state import GRACE

NAME = "scale"
TITLE = "Scale: many processes, a standing queue, a million requests a day"
MINUTES = 3

ROUND_PERIOD, ROUND_TIMEOUT = 60, 120  # seconds, of the janitor in the template
SLOTS = (10, 100, 500)
_SCENES_TAKE = 10_000  # as long as so many requests
# Of a request that had to wait. The others follow from these, from sizes, or from who else was there.
CALLS = {
    "lambda.starter": "starter invocations",
    "dynamodb.update_item": "DynamoDB writes",
    "write units": "write units",
    "dynamodb.get_item": "DynamoDB reads",
    "read units": "read units",
    "stepfunctions.start_execution": "StartExecution",
    "transitions": "Step Functions transitions",
    "glue.start_job_run": "StartJobRun",
    "events.put_events": "PutEvents",
    "log lines": "log lines",
}
SQS = ("send", "receive", "change_visibility", "delete")


def loads(small: bool) -> list[Load]:
    """More and more requests at ten processes, then more and more processes."""
    if small:
        return [Load(2, 20, 2), Load(2, 60, 2), Load(6, 60, 2)]
    return [Load(10, requests, 2) for requests in (100, 1000, 10_000)] + [Load(each, 10_000, 2) for each in (100, 1000)]


def scenes(small: bool) -> list[Scene]:
    """What a janitor may find."""
    some = (2, 4) if small else (10, 100, 1000)
    most = some[-1]
    return [
        *[Scene("nobody has ever waited", each) for each in some],
        *[Scene("idle, each had a waiter once", each, waiting="gone") for each in some],
        *[Scene("10 slots, all taken, others wait", each, 10, waiting="hidden") for each in some],
        Scene("100 slots, all taken, others wait", most, 10 if small else 100, waiting="hidden"),
        Scene("a fortnight's failed workflows", 10, failed=100 if small else 100_000),
        Scene("10 dead holders each", some[-2], dead=10),
        Scene("10 slots, ListExecutions is throttled", most, 10, waiting="hidden", throttled=("list_executions",)),
    ]


def measure(folder: Path, tell: Tell, *, small: bool = False) -> Outcome:
    """Runs every load and scene, one after the other, and reckons the dollars."""
    driven: list[dict[str, Any]] = []
    todo = [loads(small)] if small else [[load] for load in loads(small)]  # to start a process takes a second or two
    work = [together[0].requests for together in todo] + [_SCENES_TAKE]
    for number, together in enumerate(todo):
        tell(f"{together[0].requests:,} requests, {together[0].processes:,} processes", sum(work[:number]) / sum(work))
        driven += run("loads", [asdict(load) for load in together])
    tell("rounds of the janitor", 1 - work[-1] / sum(work))
    rounds = run("scenes", [asdict(scene) for scene in scenes(small)])
    tell("the janitor in trouble", 1 - work[-1] / sum(work))
    troubles = run("troubles", [{"number": n, "small": small} for n in range(len(TROUBLES))])
    by_requests = [each for each in driven if each["processes"] == driven[0]["processes"]]
    by_processes = [each for each in driven if each["requests"] == by_requests[-1]["requests"]]

    power = exponent(by_requests, "starter_seconds")
    figures = {
        "loads": driven,
        "rounds": rounds,
        "troubles": troubles,
        "exponents": {"starter": power, "whole": exponent(by_requests, "whole_seconds")},
        "dollars": {slots: [asdict(each) for each in dollars.designs(dollars.Assumed(slots=slots))] for slots in SLOTS},
    }
    growth, costs = folder / "scale.png", folder / "dollars.png"
    pictures.draw_growth(by_requests, by_processes, growth)
    pictures.draw_dollars([dollars.Assumed(slots=slots) for slots in SLOTS], costs)
    return Outcome(
        grids=[
            tables.counts(driven, CALLS, SQS),
            tables.times(driven),
            tables.rounds(rounds),
            tables.troubles(troubles),
            *[tables.dollars_a_day(dollars.Assumed(slots=slots)) for slots in SLOTS],
            tables.lacks(dollars.Assumed()),
            tables.transitions(dollars.Assumed(slots=SLOTS[0])),
        ],
        goals=[*goals(driven, by_processes, rounds, power), *goals_in_trouble(troubles)],
        figures=figures,
        pictures=[
            (growth, "CPU time and calls against requests (both axes logarithmic; grey: in proportion) and processes"),
            (costs, "A million requests a day, without the Glue runs: dollars a day by design and service"),
        ],
        notes=[
            "Counted in the simulation of tests/simulation: the functions' own handlers and the workflow's own "
            "definition; the services answer from memory, and nothing goes wrong.",
            "CPU time: of the handlers, with Powertools and all that they log, but without boto3's, which goes with "
            "the calls, and without the simulation's (whole: with it).",
            f"A round's seconds are reckoned: {tables.CALLS_TAKE}.",
            "Dollars are arithmetic, not measured: dev/benchmarks/scale/dollars.py, prices as in docs/costs.md.",
        ],
    )


def goals(
    driven: Sequence[dict[str, Any]],
    by_processes: Sequence[dict[str, Any]],
    rounds: Sequence[dict[str, Any]],
    power: float,
) -> list[Goal]:
    """What was aimed at, and what came of it."""
    # At most: the last of a burst find no registration to wake, once the janitor has removed it.
    names = [*CALLS, *(f"sqs.{_sqs(name)}" for name in SQS)]
    uneven = sorted(name for name in names if len({each["of_a_waiter"][name][1] for each in driven}) > 1)
    exact = all(each["all"]["lambda.starter"] == each["requests"] + each["waited"] for each in driven)
    a_request = [each["starter_seconds"] / each["requests"] for each in by_processes]
    invocations = max(each["all"]["lambda.starter"] / each["requests"] for each in driven)
    most = max(each["scene"]["processes"] for each in rounds)
    usual = [each for each in rounds if each["scene"]["processes"] == most and not each["scene"]["throttled"]]
    longest = max(told["seconds"] for each in usual for told in each["rounds"])
    worst = max(told["seconds"] for each in rounds for told in each["rounds"])
    return [
        Goal(
            "a request that had to wait makes the same calls at most, whatever the queue's length and the processes",
            "the same" if exact and not uneven else f"not the same: {', '.join(uneven) or 'invocations'}",
            exact and not uneven,
        ),
        Goal("at most 2.2 starter invocations a request, others waiting", f"{invocations:.2f}", invocations <= 2.2),
        Goal("CPU time grows as requests to the power 1.0 +- 0.1", f"{power:.3f}", abs(power - 1) <= 0.1),
        Goal(
            "and no more for more processes: within 1.25 x",
            f"{max(a_request) / a_request[0]:.2f} x at most",
            max(a_request) <= 1.25 * a_request[0],
        ),
        Goal(
            f"a round of the janitor over {most:,} processes ends before the next begins, {ROUND_PERIOD} s later",
            f"{longest:.1f} s at most",
            longest <= ROUND_PERIOD,
        ),
        Goal(
            f"and whatever it finds, within its function's {ROUND_TIMEOUT} s",
            f"{worst:.0f} s at most",
            worst <= ROUND_TIMEOUT,
        ),
    ]


def goals_in_trouble(troubles: Sequence[dict[str, Any]]) -> list[Goal]:
    """What the janitor owes to those who have nothing to do with the trouble."""
    masses, *_ = [each for each in troubles if each["name"].startswith("1,000 processes")]
    woken = [math.inf if each["woken"] is None else each["woken"] for each in troubles]
    # Where a thousand processes have requests to keep, they take turns at DescribeExecution's quota.
    kept = [math.inf if each["kept"] is None else each["kept"] - GRACE for each in troubles if each is not masses]
    slots = masses["all_freed"]
    return [
        Goal(
            f"in any trouble others' requests are woken, and kept once the grace is over, in {2 * ROUND_PERIOD} s",
            f"{max(woken):.0f} s and {max(kept):.0f} s at most",
            max(*woken, *kept) <= 2 * ROUND_PERIOD,
        ),
        Goal(
            "after 10,000 workflows were aborted at once every slot is free in 600 s",
            "not" if slots is None else f"{slots:.0f} s",
            slots is not None and slots < 600,
        ),
    ]


def exponent(driven: Sequence[dict[str, Any]], name: str) -> float:
    """How this grows with the requests: the slope of the straight line through the logarithms."""
    points = [(math.log(each["requests"]), math.log(each[name])) for each in driven]
    return linear_regression([x for x, _ in points], [y for _, y in points]).slope


def _sqs(name: str) -> str:
    return "change_message_visibility" if name == "change_visibility" else f"{name}_message"
