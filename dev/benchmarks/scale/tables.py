"""The part's figures as grids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dev.benchmarks.outcome import Grid
from dev.benchmarks.scale import dollars
from dev.benchmarks.scale.rounds import CALL_SECONDS, PAGE_SECONDS, calls

CALLS_TAKE = (
    f"{CALL_SECONDS * 1000:.0f} ms a call and {PAGE_SECONDS * 1000:.0f} ms a page of a list, one after the other, and "
    "the CPU time on the share of a processor that 512 MB have"
)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def counts(driven: Sequence[Mapping[str, Any]], names: Mapping[str, str], sqs: Sequence[str]) -> Grid:
    """Of a request that had to wait: every load a column."""
    heads = [f"{each['requests']:,} / {each['processes']:,}" for each in driven]
    rows = [(told, *(_span(each["of_a_waiter"][name]) for each in driven)) for name, told in names.items()]
    requests = [[_sqs(each, bound, sqs) for bound in (0, 1)] for each in driven]
    rows.append(("SQS requests", *(_span(each) for each in requests)))
    rows.append(("starter invocations, of all", *(f"{each['all']['lambda.starter']:,}" for each in driven)))
    rows.append(("of them had to wait", *(f"{each['waited']:,}" for each in driven)))
    caption = "Least to most over all requests of the load that had to wait; one number where all are alike."
    return Grid("Calls of a request that had to wait, by requests / processes", ["", *heads], rows, caption)


def times(driven: Sequence[Mapping[str, Any]]) -> Grid:
    """CPU time."""
    columns = [
        "requests / processes",
        "starter, s",
        "ms a request",
        "janitor, s",
        "its rounds",
        "ms a round",
        "whole, s",
    ]
    rows = []
    for each in driven:
        rounds = each["janitor"]["lambda.janitor"]
        rows.append(
            (
                f"{each['requests']:,} / {each['processes']:,}",
                f"{each['starter_seconds']:.3f}",
                f"{each['starter_seconds'] / each['requests'] * 1000:.3f}",
                f"{each['janitor_seconds']:.3f}",
                f"{rounds:,}",
                f"{each['janitor_seconds'] / rounds * 1000:.1f}",
                f"{each['whole_seconds']:.2f}",
            )
        )
    return Grid("CPU time of the functions' own code", columns, rows, "Two slots a process; a round a minute.")


def rounds(told: Sequence[Mapping[str, Any]]) -> Grid:
    """The janitor's, of each scene the first and the last one."""
    columns = [
        "what it finds", "processes", "round", "calls", "pages of lists", "reads", "read units", "writes",
        "log lines", "log KB", "CPU, ms", "reckoned, s",
    ]  # fmt: skip
    rows = []
    for each in told:
        for number in {0, len(each["rounds"]) - 1}:
            found = each["rounds"][number]
            counted = found["counts"]
            rows.append(
                (
                    each["scene"]["name"],
                    f"{each['scene']['processes']:,}",
                    str(number + 1),
                    f"{calls(counted):,}",
                    f"{sum(counted.get(f'stepfunctions.{name}', 0) for name in ('list_executions',)):,}",
                    f"{sum(counted.get(f'dynamodb.{name}', 0) for name in ('scan', 'get_item', 'batch_get_item')):,}",
                    f"{counted['read units']:,}",
                    f"{counted.get('dynamodb.update_item', 0):,}",
                    f"{counted['log lines']:,}",
                    f"{counted['log bytes'] / 1024:,.0f}",
                    f"{found['cpu_seconds'] * 1000:,.0f}",
                    f"{found['seconds']:.1f}",
                )
            )
    return Grid("A round of the janitor", columns, rows, f"Round 1 is a container's first. Reckoned: {CALLS_TAKE}.")


def troubles(told: Sequence[Mapping[str, Any]]) -> Grid:
    """The janitor's runs in virtual time."""
    columns = [
        "trouble", "another's request woken, s", "its aborted request kept, s", "its dead holder's slot free, s",
        "all slots free, s", "all requests kept, s", "kept at most", "longest run, s", "runs at once", "runs skipped",
    ]  # fmt: skip
    rows = [
        (
            each["name"],
            *(_seconds(each[name]) for name in ("woken", "kept", "freed", "all_freed", "all_kept")),
            str(each["most_kept"]),
            _seconds(each["longest"]),
            str(each["at_once"]),
            str(each["ended"].get("skipped", 0)),
        )
        for each in told
    ]
    caption = (
        "Virtual time: the janitor's own code, a run a minute, 10 ms a call, 100 ms a page, the lower of AWS's quotas. "
        "Woken and kept: since the wake was lost and the workflow aborted; the others since the trouble began. -: not "
        "while it was watched."
    )
    return Grid("The janitor in trouble", columns, rows, caption)


def dollars_a_day(given: dollars.Assumed) -> Grid:
    """Every design."""
    services = list(dict.fromkeys(name for each in dollars.designs(given) for name in each.parts))
    columns = ["design", *services, "a day", "a month with Glue", "looks in vain", "slot idle, s", "slots needed"]
    rows = []
    for each in dollars.designs(given):
        rows.append(
            (
                each.name,
                *(_usd(each.parts[name]) if name in each.parts else "" for name in services),
                _usd(each.day),
                f"{dollars.DAYS * (each.day + dollars.glue_runs(given)):,.0f}",
                f"{each.looks:.1f}",
                f"{each.idle:.1f}",
                f"{given.requests * (given.job + each.idle) / dollars.DAY:,.0f}" if each.name != "Glue alone" else "",
            )
        )
    caption = (
        f"USD; {given.requests:,} requests a day, runs of {given.job:g} s, {given.processes} processes of "
        f"{given.slots} slots, each request waits {given.wait:g} s. Glue: the smallest runs of a Python shell. "
        "Slots needed: for this load, with the time for which they stand idle."
    )
    return Grid(f"A million requests a day, {given.slots} slots a process", columns, rows, caption)


def lacks(given: dollars.Assumed) -> Grid:
    """What a reader must know before the prices are compared."""
    rows = [(each.name, each.lacks) for each in dollars.designs(given) if each.lacks]
    return Grid("What a design does without", ["design", "lacks"], rows, words=2)


def transitions(given: dollars.Assumed) -> Grid:
    """Where our own dollars go."""
    rows = [(name, f"{number}", f"{day:,.2f}", why) for name, number, day, why in dollars.with_fewer_transitions(given)]
    columns = ["our workflow", "transitions", "USD a day", "but"]
    return Grid("What fewer transitions would save", columns, rows, "All of this design's costs, without Glue.")


def _usd(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 1000 else f"{amount:.1f}"


def _span(least_and_most: Sequence[int]) -> str:
    least, most = least_and_most
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _sqs(each: Mapping[str, Any], bound: int, names: Sequence[str]) -> int:
    operations = ("change_message_visibility" if name == "change_visibility" else f"{name}_message" for name in names)
    total: int = sum(each["of_a_waiter"][f"sqs.{operation}"][bound] for operation in operations)
    return total
