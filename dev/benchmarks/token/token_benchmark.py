"""How long instances wait for a token that another one refreshes, and what it costs, beside two rivals.

Every instance has a token; it dies, and all meet the 401 at the same instant. A token that is dead again when it comes
is tried up to three times more, as a chatbot would.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from dev.benchmarks.outcome import Outcome, Tell
from dev.benchmarks.token import token_tables
from dev.benchmarks.token.crowds import Crowds, Invalidation
from dev.benchmarks.token.token_designs import LOCK, NOTHING, TABLE, WAYS
from dev.benchmarks.token.token_tables import Measured
from dev.emulator.aws import EmbeddedAws

NAME = "token"
TITLE = "Token: one dead token, many clients"
MINUTES = 1.5

# Longer than this machine takes for what 500 clients ask at once, and not just where the textbook loop's looks fall.
AUTH_SECONDS = 1.5
ROUNDS = {10: 2, 100: 2, 500: 2}  # by clients
SMALL_AUTH_SECONDS = 0.1
SMALL_ROUNDS = {2: 1, 8: 1}


def measure(folder: Path, tell: Tell, *, small: bool = False) -> Outcome:
    """See dev/benchmarks/outcome.py. Raises EngineError, CannotGoOn."""
    auth_seconds, rounds = (SMALL_AUTH_SECONDS, SMALL_ROUNDS) if small else (AUTH_SECONDS, ROUNDS)
    with EmbeddedAws.start(folder / "aws") as engine:
        create_table(engine)
        with Crowds(engine.endpoint, auth_seconds) as crowds:
            crowds.meet_401(LOCK, min(100, max(rounds)))  # to warm it up
            measured = _rounds(crowds, rounds, tell)
    result = Measured(auth_seconds, measured)
    return Outcome(token_tables.grids(result), token_tables.goals(result), _figures(result), notes=token_tables.NOTES)


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


def _figures(result: Measured) -> dict[str, object]:
    return {
        "auth_seconds": result.auth_seconds,
        "measured": [
            {"clients": count, "way": way, "rounds": [_plain(each) for each in rounds]}
            for count, by_way in result.by_count.items()
            for way, rounds in by_way.items()
        ],
    }


def _plain(each: Invalidation) -> dict[str, object]:
    waits = [round(seconds, 4) for seconds in each.waits]
    return {"posts": each.posts, "failed": each.failed, "waits": waits, "counts": dict(each.counts)}
