"""What was found, as tables and goals. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

from dev.benchmarks.outcome import Goal, Grid
from dev.benchmarks.token.crowds import Invalidation
from dev.benchmarks.token.idle import Asked
from dev.benchmarks.token.reckoned import CALL_SECONDS, MOST
from dev.benchmarks.token.ways import LOCK, TEXTBOOK
from dev.scenarios.slots.figures import percentile

# Dollars for a million units, on demand, us-east-1, November 2026 (DynamoDB's price list).
READ_PRICE, WRITE_PRICE = 0.125, 0.625

ByWay = Mapping[str, Sequence[Invalidation]]

NOTES = (
    "Measured: the embedded AWS, whose conditional writes are atomic over HTTP, and the chat API's stand-in; as many "
    "processes as the machine has processors, a thread for each client, connections open beforehand, a thin client "
    "instead of botocore (1 ms of processor time a call; a Lambda container has its own). What 500 "
    "clients wait beyond the API's time is still mostly this machine's queue, see the column of a call; and since a "
    "call takes them so long, they make fewer of them than reckoned.",
    f"Reckoned: the same code on a clock that jumps from event to event, calls of {CALL_SECONDS * 1000:.0f} ms, "
    f"{MOST['reads']} reads and {MOST['writes']} writes a second of one item, then throttled; pauses drawn "
    "five times. It stands for DynamoDB inside a region, and is no measurement.",
    "The textbook loop takes the same lock by the same conditional write; it pauses for 1, 2, 4, 8, 10 s and has no "
    "lease that is watched, no memory of a refusal, no probe of the token. Without coordination nobody waits for "
    "others, but each POST /auth ends the token before: who is unanswered has had four dead tokens in a row.",
    "Units are those of DynamoDB's rules: one for a consistent read of up to 4 KB, one for a write of up to 1 KB, "
    "refused or not.",
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """All of a run. `measured` and `by_count` (reckoned) by clients, `by_latency` by seconds of a `POST /auth`,
    `by_other` by what is otherwise."""

    auth_seconds: float
    measured: Mapping[int, ByWay]
    by_count: Mapping[int, ByWay]
    by_latency: Mapping[float, ByWay]
    by_other: Mapping[str, Sequence[Invalidation]]
    asked: Sequence[Asked]


def goal_seconds(auth_seconds: float) -> float:
    """What 99 of 100 who wait wait at most."""
    return 1.5 * auth_seconds + 0.25


def waits_of(rounds: Sequence[Invalidation]) -> list[float]:
    """Seconds of all of them together."""
    return [seconds for each in rounds for seconds in each.waits]


def share_of(rounds: Sequence[Invalidation], share: float) -> float:
    """A percentile of all waits; 0 if nobody waited."""
    return percentile(waits_of(rounds), share) or 0.0


def mean_posts(rounds: Sequence[Invalidation]) -> float:
    return mean(each.posts for each in rounds)


def grids(found: Found) -> list[Grid]:
    """All of them."""
    auth = f"POST /auth of {found.auth_seconds:g} s"
    measured = Grid(
        f"One invalidation, measured on this machine, {auth}",
        ("way", "clients", "POST /auth", "unanswered", "wait p50", "wait p99", "reads", "writes", "refused", "a call"),
        [
            [*_row(way, count, rounds), f"{_call(rounds) * 1000:.0f} ms"]
            for count, by_way in found.measured.items()
            for way, rounds in by_way.items()
        ],
        "Waits are of those who did not refresh. Reads, writes: DynamoDB's units for one invalidation; refused: of the "
        "writes, by their condition. A call: the median of a call of the engine.",
    )  # fmt: skip
    reckoned = Grid(
        f"The same, reckoned for calls of {CALL_SECONDS * 1000:.0f} ms, {auth}",
        ("way", "clients", "POST /auth", "unanswered", "wait p50", "wait p99", "reads", "writes", "refused",
         "throttled", "$ for 1,000"),
        [
            [*_row(way, count, rounds), _mean(rounds, "throttled"), f"{1000 * _price(rounds):.4f}"]
            for count, by_way in found.by_count.items()
            for way, rounds in by_way.items()
        ],
        f"$: of reads and writes on demand in us-east-1, {READ_PRICE} and {WRITE_PRICE} for a million.",
    )  # fmt: skip
    return [measured, _beside(found), reckoned, _latencies(found), _others(found), _idle(found)]


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


def _beside(found: Found) -> Grid:
    """Ratios of the rounds that were run one after the other."""
    rows = []
    for count, by_way in found.measured.items():
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


def _latencies(found: Found) -> Grid:
    rows = []
    for seconds, by_way in found.by_latency.items():
        cells = [f"{seconds:g} s", f"{goal_seconds(seconds):.2f} s"]
        for way in (LOCK, TEXTBOOK):
            rounds = by_way[way]
            cells += [f"{share_of(rounds, share):.2f} s" for share in (0.5, 0.99)]
            cells.append(f"{mean(each.counts['reads'] / 100 for each in rounds):.1f}")
        rows.append(cells)
    names = [f"{short} {figure}" for short in ("lock", "textbook") for figure in ("p50", "p99", "looks")]
    return Grid(
        "100 clients and APIs of other speeds, reckoned",
        ("POST /auth", "goal of p99", *names),
        rows,
        "Looks: reads for each client. The textbook loop is as quick where the API takes a little under 1 or 3 s: then "
        "it looks.",
    )


def _others(found: Found) -> Grid:
    rows = [
        [
            name,
            _range([each.posts for each in rounds]),
            *(f"{share_of(rounds, share):.2f} s" for share in (0.5, 0.99)),
            f"{mean(each.counts['reads'] / 100 for each in rounds):.1f}",
            _mean(rounds, "refused"),
        ]
        for name, rounds in found.by_other.items()
    ]
    return Grid(
        "100 clients of the lock, and what may be otherwise, reckoned",
        ("what", "POST /auth", "wait p50", "wait p99", "looks", "refused writes"),
        rows,
        "In the other tables the last refresh took between three quarters and five quarters of this one, and all meet "
        "the 401 at once.",
    )


def _idle(found: Found) -> Grid:
    return Grid(
        "What one chat message asks of AWS",
        ("message", "token reads", "token writes", "replay check", "secrets", "POST /auth"),
        [
            [
                each.what,
                *map(str, (each.token_reads, each.token_writes, each.signature_writes, each.secret_reads, each.posts)),
            ]
            for each in found.asked
        ],
        "Counted at the chatbot's own AWS clients. The replay check is one conditional write into another table.",
    )


def goals(found: Found) -> list[Goal]:
    """Computed from what was found."""
    made = []
    posts = {count: [each.posts for each in by_way[LOCK]] for count, by_way in found.measured.items()}
    counts = _list([f"{count:,}" for count in posts])
    told = _list([_range(each) for each in posts.values()])
    once = all(number == 1 for each in posts.values() for number in each)
    made.append(Goal(f"exactly one POST /auth for an invalidation at {counts} clients", told, once))
    bound = goal_seconds(found.auth_seconds)
    for count, by_way in found.measured.items():
        p99 = share_of(by_way[LOCK], 0.99)
        here = f"{p99:.2f} s here, where a call takes {_call(by_way[LOCK]) * 1000:.0f} ms; reckoned "
        here += f"{share_of(found.by_count[count][LOCK], 0.99):.2f} s"
        aim = f"wait p99 <= 1.5 x POST /auth + 250 ms = {bound:.2f} s at {count:,} clients"
        made.append(Goal(aim, here, p99 <= bound))
    p99s = {
        f"{seconds:g} s": share_of(by_way[LOCK], 0.99) - goal_seconds(seconds)
        for seconds, by_way in found.by_latency.items()
    }
    others = {f"{count:,} clients": by_way[LOCK] for count, by_way in found.by_count.items()} | dict(found.by_other)
    p99s |= {name: share_of(rounds, 0.99) - bound for name, rounds in others.items()}
    late = [name for name, over in p99s.items() if over > 0]
    speeds = f"{min(found.by_latency):g} to {max(found.by_latency):g} s"
    missed = f"not so: {'; '.join(late)}" if late else "so in all of them"
    most = f"{max(found.by_count):,}"
    aim = f"the same with up to {most} clients, APIs of {speeds} and whatever else may be otherwise, reckoned"
    made.append(Goal(aim, missed, not late))
    warm = next(each for each in found.asked if each.what.startswith("a warm"))
    calls = warm.token_reads + warm.token_writes
    made.append(Goal("no call for the token with a message when nothing happens", str(calls), calls == 0))
    return made


def _call(rounds: Sequence[Invalidation]) -> float:
    return median(seconds for each in rounds for seconds in each.latencies)


def _units(each: Invalidation) -> float:
    return each.counts["reads"] + each.counts["writes"]


def _price(rounds: Sequence[Invalidation]) -> float:
    return mean(each.counts["reads"] * READ_PRICE + each.counts["writes"] * WRITE_PRICE for each in rounds) / 1e6


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
