"""What was found, as tables and goals. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

from dev.benchmarks.outcome import Goal, Grid
from dev.benchmarks.token.crowds import Invalidation
from dev.benchmarks.token.token_designs import LOCK, TEXTBOOK
from dev.scenarios.runner.intervals import percentile

ByWay = Mapping[str, Sequence[Invalidation]]

NOTES = (
    "The embedded AWS, whose conditional writes are atomic over HTTP, and the chat API's stand-in; as many processes "
    "as the machine has processors, a thread for each client, connections open beforehand, a thin client instead of "
    "botocore (1 ms of processor time a call; a Lambda container has its own). What 500 clients wait beyond the API's "
    "time is mostly this machine's queue, see the column of a call.",
    "The textbook loop takes the same lock by the same conditional write; it pauses for 1, 2, 4, 8, 10 s and has no "
    "lease that is watched, no memory of a refusal, no probe of the token. Without coordination nobody waits for "
    "others, but each POST /auth ends the token before: who is unanswered has had four dead tokens in a row.",
    "Units are those of DynamoDB's rules: one for a consistent read of up to 4 KB, one for a write of up to 1 KB, "
    "refused or not.",
)


@dataclass(frozen=True)
class Measured:
    """All of a run. `by_count`: by the number of clients."""

    auth_seconds: float
    by_count: Mapping[int, ByWay]


def goal_seconds(auth_seconds: float) -> float:
    """What 99 of 100 who wait wait at most."""
    return 1.5 * auth_seconds + 0.25


def waits_of(rounds: Sequence[Invalidation]) -> list[float]:
    """Seconds of all of them together."""
    return [seconds for each in rounds for seconds in each.waits]


def share_of(rounds: Sequence[Invalidation], share: float) -> float:
    """A percentile of all waits; 0 if nobody waited."""
    return percentile(waits_of(rounds), share) or 0.0


def grids(result: Measured) -> list[Grid]:
    """All of them."""
    measured = Grid(
        f"One invalidation, POST /auth of {result.auth_seconds:g} s",
        ("way", "clients", "POST /auth", "unanswered", "wait p50", "wait p99", "reads", "writes", "refused", "a call"),
        [
            [*_row(way, count, rounds), f"{_call(rounds) * 1000:.0f} ms"]
            for count, by_way in result.by_count.items()
            for way, rounds in by_way.items()
        ],
        "Waits are of those who did not refresh. Reads, writes: DynamoDB's units for one invalidation; refused: of the "
        "writes, by their condition. A call: the median of a call of the engine.",
    )
    return [measured, _ratio_grid(result)]


def _row(way: str, count: int, rounds: Sequence[Invalidation]) -> list[str]:
    return [
        way,
        f"{count:,}",
        _range([each.posts for each in rounds]),
        _range([each.failed for each in rounds]),
        f"{share_of(rounds, 0.5):.2f} s",
        f"{share_of(rounds, 0.99):.2f} s",
        _mean(rounds, "reads"),
        _mean(rounds, "writes"),
        _mean(rounds, "refused"),
    ]


def _ratio_grid(result: Measured) -> Grid:
    """Ratios of the rounds that were run one after the other."""
    rows = []
    for count, by_way in result.by_count.items():
        pairs = list(zip(by_way[LOCK], by_way[TEXTBOOK], strict=True))
        rows.append(
            [
                f"{count:,}",
                *(_ratios([(share_of([a], share), share_of([b], share)) for a, b in pairs]) for share in (0.5, 0.99)),
                _ratios([(_units(a), _units(b)) for a, b in pairs]),
            ]
        )
    return Grid(
        "The token lock's share of the textbook loop's, measured",
        ("clients", "wait p50", "wait p99", "DynamoDB calls"),
        rows,
        "The median of the rounds' ratios, and their range.",
    )


def goals(result: Measured) -> list[Goal]:
    """Computed from what was found."""
    made = []
    posts = {count: [each.posts for each in by_way[LOCK]] for count, by_way in result.by_count.items()}
    counts = _list([f"{count:,}" for count in posts])
    ranges = _list([_range(each) for each in posts.values()])
    once = all(number == 1 for each in posts.values() for number in each)
    made.append(Goal(f"exactly one POST /auth for an invalidation at {counts} clients", ranges, once))
    bound = goal_seconds(result.auth_seconds)
    for count, by_way in result.by_count.items():
        p99 = share_of(by_way[LOCK], 0.99)
        text = f"{p99:.2f} s, where a call takes {_call(by_way[LOCK]) * 1000:.0f} ms"
        aim = f"wait p99 <= 1.5 x POST /auth + 250 ms = {bound:.2f} s at {count:,} clients"
        made.append(Goal(aim, text, p99 <= bound))
    return made


def _call(rounds: Sequence[Invalidation]) -> float:
    return median(seconds for each in rounds for seconds in each.latencies)


def _units(each: Invalidation) -> float:
    return each.counts["reads"] + each.counts["writes"]


def _mean(rounds: Sequence[Invalidation], name: str) -> str:
    return f"{mean(each.counts[name] for each in rounds):,.0f}"


def _ratios(pairs: Sequence[tuple[float, float]]) -> str:
    values = [ours / theirs for ours, theirs in pairs if theirs]
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})" if values else "-"


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def _list(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1]
