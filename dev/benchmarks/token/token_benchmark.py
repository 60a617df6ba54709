"""The wait of instances for a token that another one refreshes, and its cost, next to two alternatives.

The token of all instances is invalidated, and all receive the 401 at the same instant. An instance that receives
another invalid token tries up to three times more, as a chatbot would.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from dev.benchmarks.outcome import Notify, Outcome
from dev.benchmarks.token import token_tables
from dev.benchmarks.token.crowds import Crowds, Invalidation
from dev.benchmarks.token.token_designs import DESIGNS, LOCK, NOTHING, TABLE
from dev.benchmarks.token.token_tables import TokenFigures
from dev.emulator.aws import EmbeddedAws

TITLE = "Token: one invalidation, many clients"
MINUTES = 1.5

# Longer than this machine takes for the calls of 500 clients, and not the instant of a poll of the textbook loop.
AUTH_SECONDS = 1.5
ROUNDS = {10: 2, 100: 2, 500: 2}  # by clients
SMALL_AUTH_SECONDS = 0.1
SMALL_ROUNDS = {2: 1, 8: 1}


def measure(folder: Path, notify: Notify, *, small: bool = False) -> Outcome:
    """See dev/benchmarks/outcome.py. Raises EngineError, CannotContinue."""
    auth_seconds, rounds = (SMALL_AUTH_SECONDS, SMALL_ROUNDS) if small else (AUTH_SECONDS, ROUNDS)
    with EmbeddedAws.start(folder / "aws") as engine:
        create_table(engine)
        with Crowds(engine.endpoint, auth_seconds) as crowds:
            crowds.meet_401(LOCK, min(100, max(rounds)))  # warm-up
            measured = _rounds(crowds, rounds, notify)
    result = TokenFigures(auth_seconds, measured)
    return Outcome(token_tables.grids(result), token_tables.goals(result), _figures(result), notes=token_tables.NOTES)


def create_table(engine: EmbeddedAws) -> None:
    engine.client("dynamodb").create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "token_name", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "token_name", "KeyType": "HASH"}],
    )


def _rounds(crowds: Crowds, rounds: Mapping[int, int], notify: Notify) -> dict[int, dict[str, list[Invalidation]]]:
    """By clients and design. Round robin, so that a disturbance of the machine affects all designs.

    Without coordination one round is enough, and takes as long as two of the others.
    """
    measured: dict[int, dict[str, list[Invalidation]]] = {count: defaultdict(list) for count in rounds}
    turns = [(turn, count) for turn in range(max(rounds.values())) for count in rounds if turn < rounds[count]]
    todo = [(count, design) for turn, count in turns for design in DESIGNS if design != NOTHING or not turn]
    weights = [1 + count / 200 for count, _ in todo]  # many clients take longer
    for number, (count, design) in enumerate(todo):
        notify(f"{design}, {count} clients", 0.05 + 0.9 * sum(weights[:number]) / sum(weights))
        measured[count][design].append(crowds.meet_401(design, count, seed=len(measured[count][design])))
    return measured


def _figures(result: TokenFigures) -> dict[str, object]:
    return {
        "auth_seconds": result.auth_seconds,
        "measured": [
            {"clients": count, "way": design, "rounds": [_plain(each) for each in rounds]}
            for count, by_design in result.by_count.items()
            for design, rounds in by_design.items()
        ],
    }


def _plain(each: Invalidation) -> dict[str, object]:
    waits = [round(seconds, 4) for seconds in each.waits]
    return {"posts": each.posts, "failed": each.failed, "waits": waits, "counts": dict(each.counts)}
