"""The figures as tables, goals and notes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dev.benchmarks.outcome import Goal, Grid, Outcome

from .figures import Expected, expected, spread_out
from .hand_off_designs import JOB_SECONDS, WAKE, WAKE_CHILDREN

MEDIAN, P99, USED, INVOCATIONS = 1.0, 2.0, 0.95, 2.2
SMALL_FRACTION = 0.2
JOB_LENGTHS = (1, 60, 600)  # seconds
SLOW = 0.5  # seconds
LABELS = {WAKE: "wake", WAKE_CHILDREN: "wake, state machines"}
CALLS = ("DynamoDB writes", "DynamoDB reads", "SQS visibility", "StartExecution")
Variants = Mapping[str, Mapping[str, Any]]


def label(name: str, period: int | None) -> str:
    """`name`: the variant's."""
    return LABELS.get(name, f"polling every {period} s")


def seconds(value: float | None) -> str:
    """Milliseconds below a second."""
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def outcome(figures: dict[str, Any], limit: int) -> Outcome:
    variants = figures["ways"]
    grids = [hand_offs(variants, limit), costs(variants, limit), longer_jobs(variants, limit)]
    return Outcome(grids, goals(variants), figures, NOTES)


def hand_offs(variants: Variants, limit: int) -> Grid:
    rows = []
    for name, variant in variants.items():
        computed = variant.get("expected")
        rows.append(
            (
                label(name, variant["period"]),
                str(len(variant["hand_offs"])),
                seconds(variant["median"]),
                seconds(computed["hand_off"]) if computed else "-",
                seconds(variant["p99"]),
                f"{variant['slots_used']:.1%}",
                f"{computed['slots_used']:.1%}" if computed else "-",
                f"{variant['work_running']:.1%}",
            )
        )
    wake = variants[WAKE]
    caption = (
        f"{limit} slots, work of {JOB_SECONDS:g} s, an endless queue. Expected: computed from the period and the time "
        f"for which a slot is held. The wake's windows: median {', '.join(map(seconds, wake['medians']))}; slots used "
        f"{', '.join(f'{value:.1%}' for value in wake['slots_used_by_window'])}."
    )
    columns = ("design", "hand-offs", "median", "expected", "p99", "slots used", "expected", "work running")
    return Grid("From a release to the next start, and the share of slot time in use", columns, rows, caption)


def costs(variants: Variants, limit: int) -> Grid:
    rows = []
    for name, variant in variants.items():
        computed, measured = variant.get("expected"), variant["per_request"]
        rows.append(
            (
                label(name, variant["period"]),
                str(variant["admitted"]),
                f"{measured['invocations']:.2f}",
                f"{computed['invocations']:.2f}" if computed else "2.00",
                *(f"{measured.get(call, 0.0):.2f}" for call in CALLS),
            )
        )
    caption = (
        "Calls of the starter and the workflow together, while requests wait: DynamoDB writes (refused ones too) and "
        "reads, ChangeMessageVisibility, StartExecution. Each invocation is one receive, since batches hold one "
        "message. Expected of polling: one refusal per poll. Of the wake: each message is refused once and admitted "
        f"once. It is less if several of the {limit} slots become free together, since the message after an admitted "
        "one is delivered without a wake, and more if a release falls between a registration and the hide. Each "
        "design also has a send and a delete per request, and the event source's empty receives."
    )
    columns = ("design", "started", "invocations", "expected", "writes", "reads", "visibility", "starts")
    return Grid("Cost of a started request (calls)", columns, rows, caption)


def longer_jobs(variants: Variants, limit: int) -> Grid:
    """Computed slot use and invocations for longer jobs, which need no measurement."""
    idles = (variants[WAKE]["median"], SLOW)
    rows = [
        (
            f"{LABELS[WAKE]}, a hand-off of {seconds(idle)}",
            *(f"{length / (length + idle):.1%}, 2.00" for length in JOB_LENGTHS),
        )
        for idle in idles
    ]
    for name, variant in variants.items():
        if variant["period"] is not None:
            computed = [_expected_of(variant["period"], length, limit) for length in JOB_LENGTHS]
            cells = (f"{each.slots_used:.1%}, {each.invocations:.2f}" for each in computed)
            rows.append((label(name, variant["period"]), *cells))
    caption = (
        "Computed: slots used, and invocations per started request. Jobs up to a period long all end before the same "
        "poll. Longer ones end at any time between two polls, and each poll in between is a refusal. The wake with its "
        f"measured median, and with {seconds(SLOW)}, an assumption for a slow one in AWS. A head that waits for more "
        "than 225 s is delivered once more, and then after each quarter of the time waited."
    )
    columns = ("design", *(f"jobs of {length} s" for length in JOB_LENGTHS))
    return Grid(f"The same with longer jobs, {limit} slots", columns, rows, caption)


def _expected_of(period: float, length: float, limit: int) -> Expected:
    return (expected if length <= period else spread_out)(period, length, limit)


def goals(variants: Variants) -> list[Goal]:
    wake, children = variants[WAKE], variants[WAKE_CHILDREN]
    middle = sorted((each for each in variants.values() if each["period"]), key=lambda each: each["period"])[1]
    median, p99, used = wake["median"], wake["p99"], wake["slots_used"]
    invocations, fraction = wake["per_request"]["invocations"], middle["slots_used"] / used
    return [
        Goal(f"hand-off median under {MEDIAN:g} s", seconds(median), median < MEDIAN),
        Goal(f"hand-off p99 under {P99:g} s", seconds(p99), p99 < P99),
        Goal(
            f"hand-off median under {MEDIAN:g} s with state machines",
            f"{seconds(children['median'])}, {children['median'] / median:.1f} x that with Glue jobs",
            children["median"] < MEDIAN,
        ),
        Goal(f"slots used at least {USED:.0%} with {JOB_SECONDS:g} s jobs", f"{used:.1%}", used >= USED),
        Goal(
            f"polling every {middle['period']} s gets a small fraction of that (below {SMALL_FRACTION:.0%})",
            f"{middle['slots_used']:.1%} of the slot time, {fraction:.0%} of the wake's",
            fraction < SMALL_FRACTION,
        ),
        Goal(
            f"at most {INVOCATIONS:g} invocations per started request", f"{invocations:.2f}", invocations <= INVOCATIONS
        ),
    ]


NOTES = (
    "The polling designs are the deployed starter and workflow without registration, second check and wake: a refused "
    "message is hidden for the period. Each has its own queue, starter and workflow; all share the slot table, the job "
    "and the engine. They keep the messages' order, as Slotkeeper does. A standard queue would give a slot to the "
    "message that polls next: sooner if many wait, out of order, and for an invocation per period and message.",
    "Between a release and the next start Slotkeeper has three state transitions and four calls (GetItem, "
    "ChangeMessageVisibility, UpdateItem, StartExecution), the queue and the event source. The engine takes almost no "
    "time between states. It reads a queue immediately after a ChangeMessageVisibility, or after 50 ms if the last "
    "read was empty, which shows in the p99. In AWS each transition and the delivery to the function take some tens of "
    "milliseconds. So the milliseconds are the engine's; the seconds of polling are not. The engine notices a hidden "
    "message that becomes visible without a call up to a second later than AWS, which lengthens a period.",
    "A hand-off of some hundred milliseconds is that of a release between the head's registration and its hide: the "
    "wake causes a second delivery during the refusal, and one of the two starts the workflow. The first time, the "
    "second delivery needs another container, and the group waits for its start.",
    "Slots used: from a workflow's start to its entry into ReleaseSlot, as a share of the slot-seconds from the first "
    "start to the last (polling: whole periods). In a hand-off of 0 s the next start was recorded before the end of "
    "the release.",
)
