"""The measurements as tables and goals. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

from dev.benchmarks.outcome import Goal, Grid
from dev.benchmarks.token.crowds import Invalidation
from dev.benchmarks.token.token_designs import LOCK, TEXTBOOK
from slotkeeper_cli.audit.intervals import percentile

ByDesign = Mapping[str, Sequence[Invalidation]]

NOTES = (
    "The embedded AWS, whose conditional writes are atomic, and a simulated chat API. One process per processor, a "
    "thread per client, open connections, a thin client instead of botocore (1 ms of processor time per call; a Lambda "
    "container has its own processor). The wait of 500 clients beyond the API's time is mostly this machine's queue: "
    "see the column of a call.",
    "The textbook loop takes the same lock by the same conditional write. It pauses for 1, 2, 4, 8, 10 s, and has no "
    "check of the lease, no memory of a refusal and no probe of the token. Without coordination no client waits for "
    "another, but each POST /auth invalidates the previous token: an unanswered client received four invalid tokens.",
    "Units are DynamoDB's: one for a consistent read of up to 4 KB, one for a write of up to 1 KB, refused or not.",
)


@dataclass(frozen=True)
class TokenFigures:
    """All measurements of a run. `by_count`: by the number of clients."""

    auth_seconds: float
    by_count: Mapping[int, ByDesign]


def goal_seconds(auth_seconds: float) -> float:
    """The goal for the p99 of the waits."""
    return 1.5 * auth_seconds + 0.25


def waits_of(rounds: Sequence[Invalidation]) -> list[float]:
    return [seconds for each in rounds for seconds in each.waits]


def share_of(rounds: Sequence[Invalidation], share: float) -> float:
    """A percentile of all waits. 0 without waits."""
    return percentile(waits_of(rounds), share) or 0.0


def grids(result: TokenFigures) -> list[Grid]:
    measured = Grid(
        f"One invalidation, POST /auth of {result.auth_seconds:g} s",
        (
            "design",
            "clients",
            "POST /auth",
            "unanswered",
            "wait p50",
            "wait p99",
            "reads",
            "writes",
            "refused",
            "a call",
        ),
        [
            [*_row(design, count, rounds), f"{_call(rounds) * 1000:.0f} ms"]
            for count, by_design in result.by_count.items()
            for design, rounds in by_design.items()
        ],
        "Waits are of the clients that did not refresh. Reads, writes: DynamoDB's units for one invalidation. Refused: "
        "writes refused by their condition. A call: the median duration of a call of the engine.",
    )
    return [measured, _ratio_grid(result)]


def _row(design: str, count: int, rounds: Sequence[Invalidation]) -> list[str]:
    return [
        design,
        f"{count:,}",
        _range([each.posts for each in rounds]),
        _range([each.failed for each in rounds]),
        f"{share_of(rounds, 0.5):.2f} s",
        f"{share_of(rounds, 0.99):.2f} s",
        _mean(rounds, "reads"),
        _mean(rounds, "writes"),
        _mean(rounds, "refused"),
    ]


def _ratio_grid(result: TokenFigures) -> Grid:
    """Ratios of consecutive rounds."""
    rows = []
    for count, by_design in result.by_count.items():
        pairs = list(zip(by_design[LOCK], by_design[TEXTBOOK], strict=True))
        rows.append(
            [
                f"{count:,}",
                *(_ratios([(share_of([a], share), share_of([b], share)) for a, b in pairs]) for share in (0.5, 0.99)),
                _ratios([(_units(a), _units(b)) for a, b in pairs]),
            ]
        )
    return Grid(
        "The token lock relative to the textbook loop",
        ("clients", "wait p50", "wait p99", "DynamoDB calls"),
        rows,
        "The median of the rounds' ratios, and their range.",
    )


def goals(result: TokenFigures) -> list[Goal]:
    made = []
    posts = {count: [each.posts for each in by_design[LOCK]] for count, by_design in result.by_count.items()}
    counts = _list([f"{count:,}" for count in posts])
    ranges = _list([_range(each) for each in posts.values()])
    once = all(number == 1 for each in posts.values() for number in each)
    made.append(Goal(f"exactly one POST /auth for an invalidation at {counts} clients", ranges, once))
    bound = goal_seconds(result.auth_seconds)
    for count, by_design in result.by_count.items():
        p99 = share_of(by_design[LOCK], 0.99)
        text = f"{p99:.2f} s; a call takes {_call(by_design[LOCK]) * 1000:.0f} ms"
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
