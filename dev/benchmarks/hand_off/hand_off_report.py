"""The figures as tables, goals and notes. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from dev.benchmarks.outcome import Goal, Grid, Outcome
from dev.scenarios.runner.intervals import percentile

from .figures import PARTS, Expected, expected, spread_out
from .hand_off_designs import JOB_SECONDS, WAKE

MEDIAN, P99, USED, INVOCATIONS = 1.0, 2.0, 0.95, 2.2
SMALL_FRACTION = 0.2
JOB_LENGTHS = (1, 60, 600)  # seconds
SLOW = 0.5  # seconds
CALLS = ("DynamoDB writes", "DynamoDB reads", "SQS visibility", "StartExecution")
WHOSE = (
    "two of the workflow's states: GetItem and a choice",
    "ChangeMessageVisibility, the queue, the event source",
    "the starter: parse, UpdateItem",
    "the starter: StartExecution",
)


def label(period: int | None) -> str:
    return "wake" if period is None else f"polling every {period} s"


def seconds(value: float | None) -> str:
    """Milliseconds below a second."""
    if value is None or math.isnan(value):
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def part_figures(measured: Sequence[tuple[float, ...]], of: int) -> dict[str, Any]:
    """How long each part of a hand-off took. `of`: how many hand-offs there were, with or without a story."""
    columns = list(zip(*measured, strict=True)) if measured else [() for _ in PARTS]
    return {
        "count": len(measured),
        "of": of,
        "parts": {
            name: {"median": statistics.median(values) if values else None, "p99": percentile(values, 0.99)}
            for name, values in zip(PARTS, columns, strict=True)
        },
    }


def outcome(figures: dict[str, Any], limit: int) -> Outcome:
    ways = figures["ways"]
    return Outcome(
        grids=[hand_offs(ways, limit), costs(ways, limit), story(figures["parts"]), arithmetic(ways, limit)],
        goals=goals(ways),
        figures=figures,
        notes=NOTES,
    )


def hand_offs(ways: Mapping[str, Mapping[str, Any]], limit: int) -> Grid:
    rows = []
    for way in ways.values():
        expected = way.get("expected")
        rows.append(
            (
                label(way["period"]),
                str(len(way["hand_offs"])),
                seconds(way["median"]),
                seconds(expected["hand_off"]) if expected else "-",
                seconds(way["p99"]),
                f"{way['slots_used']:.1%}",
                f"{expected['slots_used']:.1%}" if expected else "-",
                f"{way['jobs_running']:.1%}",
            )
        )
    windows = ways[WAKE]
    caption = (
        f"{limit} slots, jobs of {JOB_SECONDS:g} s, a queue that never ends. Expected: by arithmetic, from the period "
        f"and the time for which a slot is held. The wake's windows each: median "
        f"{', '.join(seconds(value) for value in windows['medians'])}; slots used "
        f"{', '.join(f'{value:.1%}' for value in windows['slots_used_by_window'])}."
    )
    columns = ("way", "hand-offs", "median", "expected", "p99", "slots used", "expected", "jobs running")
    return Grid("From a release to the next start, and how full the slots are", columns, rows, caption)


def costs(ways: Mapping[str, Mapping[str, Any]], limit: int) -> Grid:
    rows = []
    for way in ways.values():
        expected = way.get("expected")
        rows.append(
            (
                label(way["period"]),
                str(way["admitted"]),
                f"{way['per_request']['invocations']:.2f}",
                f"{expected['invocations']:.2f}" if expected else "2.00",
                *(f"{way['per_request'].get(name, 0.0):.2f}" for name in CALLS),
            )
        )
    caption = (
        "Calls of the starter and the workflow together, while the queue stands: DynamoDB's writes, refused ones too, "
        "and reads; ChangeMessageVisibility; StartExecution. A receive is an invocation: batches hold one message. "
        "Expected of polling: a refusal a look. Of the wake: each message refused once and admitted once; fewer where "
        f"several of the {limit} slots free at once, since whoever follows an admitted message is delivered by itself; "
        "more where a release falls between a registration and the hide. Every way has a send and a delete a request "
        "besides, and the event source's receives that find nothing."
    )
    columns = ("way", "started", "invocations", "expected", "writes", "reads", "visibility", "starts")
    return Grid("What a started request costs (calls each)", columns, rows, caption)


def story(measured: Mapping[str, Any]) -> Grid:
    rows = [
        (name, whose, seconds(measured["parts"][name]["median"]), seconds(measured["parts"][name]["p99"]))
        for name, whose in zip(PARTS, WHOSE, strict=True)
    ]
    caption = (
        f"Of the {measured['count']} hand-offs of {measured['of']} that their own workflow's wake brought about. The "
        "others were another's wake, or came by themselves behind a message that was admitted."
    )
    return Grid(
        "Where the time goes between a release and the next start", ("part", "what", "median", "p99"), rows, caption, 2
    )


def arithmetic(ways: Mapping[str, Mapping[str, Any]], limit: int) -> Grid:
    """What longer jobs would make of it, where nothing needs to be measured."""
    measured = ways[WAKE]["median"]
    rivals = [(f"{label(None)}, a hand-off of {seconds(idle)}", idle) for idle in (measured, SLOW)]
    rows = [(name, *(f"{length / (length + idle):.1%}, 2.00" for length in JOB_LENGTHS)) for name, idle in rivals]
    for way in ways.values():
        if way["period"] is not None:
            computed = [_expected_of(way["period"], length, limit) for length in JOB_LENGTHS]
            cells = (f"{each.slots_used:.1%}, {each.invocations:.2f}" for each in computed)
            rows.append((label(way["period"]), *cells))
    caption = (
        "Arithmetic: slots used, and invocations a started request. Jobs up to a period long all end before the same "
        "look; longer ones end anywhere between two, and every look in between is a refusal. The wake by its measured "
        f"median, and by {seconds(SLOW)}, an assumption of a slow one in AWS; a head that waits for more than 225 s is "
        "looked at once more, and then at each quarter of the time waited."
    )
    columns = ("way", *(f"jobs of {length} s" for length in JOB_LENGTHS))
    return Grid(f"The same with longer jobs, {limit} slots", columns, rows, caption)


def _expected_of(period: float, length: float, limit: int) -> Expected:
    return (expected if length <= period else spread_out)(period, length, limit)


def goals(ways: Mapping[str, Mapping[str, Any]]) -> list[Goal]:
    ours = ways[WAKE]
    polling = sorted((way for way in ways.values() if way["period"]), key=lambda way: way["period"])
    middle = polling[1]
    invocations = ours["per_request"]["invocations"]
    fraction = middle["slots_used"] / ours["slots_used"]
    return [
        Goal(f"hand-off median under {MEDIAN:g} s", seconds(ours["median"]), ours["median"] < MEDIAN),
        Goal(f"hand-off p99 under {P99:g} s", seconds(ours["p99"]), ours["p99"] < P99),
        Goal(
            f"slots used at least {USED:.0%} with {JOB_SECONDS:g} s jobs",
            f"{ours['slots_used']:.1%}",
            ours["slots_used"] >= USED,
        ),
        Goal(
            f"{label(middle['period'])} gets a small fraction of that (below {SMALL_FRACTION:.0%})",
            f"{middle['slots_used']:.1%} of the slot time, {fraction:.0%} of the wake's",
            fraction < SMALL_FRACTION,
        ),
        Goal(
            f"at most {INVOCATIONS:g} invocations a started request", f"{invocations:.2f}", invocations <= INVOCATIONS
        ),
    ]


NOTES = (
    "The polling ways are the deployed starter and workflow without registration, second look and wake: a refused "
    "message is hidden for the period, and that is all. Each has a queue, a starter and a workflow of its own beside "
    "the deployed ones; the slot table, the job and the engine are shared. They keep the messages' order, as ours "
    "does. A standard queue would hand a slot to whichever message looks next: sooner with many waiting, out of order, "
    "and at the cost of an invocation a period for each message that waits.",
    "Ours between a release and the next start are three state transitions and four calls: GetItem, "
    "ChangeMessageVisibility, UpdateItem, StartExecution. The rest is the queue and the event source. The engine takes "
    "next to no time from state to state, and looks at a queue at once after a ChangeMessageVisibility, or after 50 ms "
    "if it has just looked in vain, which shows in the p99. In AWS each transition, and the delivery to the function, "
    "takes some tens of milliseconds. So these milliseconds are the engine's; the polling ways' seconds are not. A "
    "hidden message that becomes visible by itself is noticed up to a second later than in AWS, which lengthens a "
    "period by as much.",
    "A hand-off of some hundred milliseconds, if there is one, is that of a release between the registration of the "
    "head and its being hidden: the wake brings a second delivery while the first is being refused, and one of the two "
    "starts the workflow. The first time this happens the second delivery needs a container of its own, and the group "
    "waits for its start.",
    "Slots used: from a workflow's start to its entry into ReleaseSlot, over the slot-seconds from the first start to "
    "the last (polling: whole periods). A hand-off that took no time is one whose next start was written down before "
    "the release's end.",
)
