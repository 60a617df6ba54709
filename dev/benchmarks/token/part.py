"""How long instances wait for a token that another one refreshes, and what it costs, beside two rivals.

Every instance has a token; it dies, and all meet the 401 at the same instant. A token that is dead again when it comes
is tried up to three times more, as a chatbot would.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from dev.benchmarks.outcome import Outcome, Tell
from dev.benchmarks.token import idle, picture, reckoned, tables
from dev.benchmarks.token.crowds import Crowds, Invalidation
from dev.benchmarks.token.tables import Found, goal_seconds
from dev.benchmarks.token.ways import LOCK, NOTHING, TABLE, TEXTBOOK, WAYS
from dev.emulator.aws import EmbeddedAws

NAME = "token"
TITLE = "Token: one dead token, many clients"
MINUTES = 1.5

# Longer than this machine takes for what 500 clients ask at once, and not just where the textbook loop's looks fall.
AUTH_SECONDS = 1.5
ROUNDS = {10: 2, 100: 2, 500: 2}  # by clients
SMALL_AUTH_SECONDS = 0.1
SMALL_ROUNDS = {2: 1, 8: 1}
# Reckoned besides: more clients than a machine has room for, and slower and faster APIs.
THOUSAND = 1000
LATENCIES = (0.1, 0.3, 0.8, 1.2, 2.0, 3.5)
# What else may be otherwise: how long the refresh before took, and when the clients meet the 401.
OTHERS: dict[str, dict[str, float]] = {
    "the last refresh took as long": {"last_share": 1.0},
    "it took half as long": {"last_share": 0.5},
    "a tenth": {"last_share": 0.1},
    "twice as long": {"last_share": 2.0},
    "ten times": {"last_share": 10.0},
    "it is not known, as for the first token": {"last_share": 0.0},
    "the 401s come within a second": {"spread": 1.0},
}
SEEDS = range(5)


def measure(folder: Path, tell: Tell, *, small: bool = False) -> Outcome:
    """See dev/benchmarks/outcome.py. Raises EngineError, CannotGoOn."""
    auth_seconds, rounds = (SMALL_AUTH_SECONDS, SMALL_ROUNDS) if small else (AUTH_SECONDS, ROUNDS)
    with EmbeddedAws.start(folder / "aws") as engine:
        create_table(engine)
        with Crowds(engine.endpoint, auth_seconds) as crowds:
            crowds.meet_401(LOCK, min(100, max(rounds)))  # to warm it up
            measured = _rounds(crowds, rounds, tell)
        tell("a chatbot's messages", 0.95)
        asked = idle.ask(engine)
    tell("reckoning", 0.97)
    counts = [*rounds, *([] if small else [THOUSAND])]
    by_count = {count: {way: _reckon(way, count, auth_seconds) for way in WAYS} for count in counts}
    by_latency = {seconds: {way: _reckon(way, 100, seconds) for way in (LOCK, TEXTBOOK)} for seconds in LATENCIES}
    by_other = {name: _reckon(LOCK, 100, auth_seconds, **other) for name, other in OTHERS.items()}
    found = Found(auth_seconds, measured, by_count, by_latency, by_other, asked)
    return _outcome(found, folder)


def create_table(engine: EmbeddedAws) -> None:
    engine.client("dynamodb").create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "token_name", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "token_name", "KeyType": "HASH"}],
    )


def _rounds(crowds: Crowds, rounds: Mapping[int, int], tell: Tell) -> dict[int, dict[str, list[Invalidation]]]:
    """By clients and way. Round robin, so that what disturbs the machine disturbs all.

    Without coordination one round says enough, and takes as long as two of the others.
    """
    measured: dict[int, dict[str, list[Invalidation]]] = {count: defaultdict(list) for count in rounds}
    turns = [(turn, count) for turn in range(max(rounds.values())) for count in rounds if turn < rounds[count]]
    todo = [(count, way) for turn, count in turns for way in WAYS if way != NOTHING or not turn]
    weights = [1 + count / 200 for count, _ in todo]  # a crowd takes its time
    for number, (count, way) in enumerate(todo):
        tell(f"{way}, {count} clients", 0.05 + 0.9 * sum(weights[:number]) / sum(weights))
        measured[count][way].append(crowds.meet_401(way, count, seed=len(measured[count][way])))
    return measured


def _reckon(way: str, count: int, auth_seconds: float, **others: float) -> list[Invalidation]:
    return [reckoned.meet_401(way, count, auth_seconds, seed, **others) for seed in SEEDS]


def _outcome(found: Found, folder: Path) -> Outcome:
    shown = 100 if 100 in found.measured else max(found.measured)
    path = folder / "token.png"
    waits = {way: tables.waits_of(rounds) for way, rounds in found.measured[shown].items()}
    posts = {way: {count: tables.mean_posts(found.measured[count][way]) for count in found.measured} for way in WAYS}
    picture.draw(waits, shown, goal_seconds(found.auth_seconds), found.auth_seconds, posts, path)
    caption = (
        f"Left: what {shown} clients wait; the lock's p99 is to stay left of the goal. Right: how often one "
        "invalidation asks the API."
    )
    return Outcome(tables.grids(found), tables.goals(found), _figures(found), [(path, caption)], tables.NOTES)


def _figures(found: Found) -> dict[str, object]:
    def all_of(by_count: Mapping[int, Mapping[str, Sequence[Invalidation]]]) -> list[dict[str, object]]:
        return [
            {"clients": count, "way": way, "rounds": [_plain(each) for each in rounds]}
            for count, by_way in by_count.items()
            for way, rounds in by_way.items()
        ]

    return {
        "auth_seconds": found.auth_seconds,
        "measured": all_of(found.measured),
        "reckoned": all_of(found.by_count),
        "idle": [asdict(each) for each in found.asked],
    }


def _plain(each: Invalidation) -> dict[str, object]:
    counts: Counter[str] = each.counts
    waits = [round(seconds, 4) for seconds in each.waits]
    return {"posts": each.posts, "failed": each.failed, "waits": waits, "counts": dict(counts)}
