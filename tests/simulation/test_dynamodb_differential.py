"""The simulated DynamoDB answers as DynamoDB Local does: the requests of the worlds, and generated expressions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from dev.emulator.dynamodb_local import DynamoDbLocal
from tests.profiles import share
from tests.simulation import any_requests, worlds
from tests.simulation.any_requests import KEY, TABLE, Item
from tests.simulation.both_dynamodbs import REFUSED, Both, make_tables
from tests.simulation.frozen import Record, thaw
from tests.simulation.small_worlds import RANDOM_WORLDS
from tests.simulation.transcript import Question
from tests.simulation.world_runs import first_broken

SCHEDULES = 15  # of each world


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of DynamoDB Local with the simulation's tables."""
    with DynamoDbLocal.start(tmp_path_factory.mktemp("dynamodb-local") / "dynamodb.log") as running:
        client = running.client()
        make_tables(client)
        yield client


def _asked_in_schedules() -> Iterator[tuple[str, dict[str, list[Item]], Question]]:
    """A table, the items of each that a request needs, and the request: each expression of the worlds, each outcome."""
    for draw in RANDOM_WORLDS.values():
        assert first_broken(draw, range(SCHEDULES)) == ("", -1)
    asked: dict[tuple[Any, ...], tuple[Record, Question]] = {}
    for (state, question, _), (_, answer) in worlds._performed.items():
        if question.service == "dynamodb":
            given = question.parameters.fields
            texts = (given[name] for name in sorted(given) if name.endswith("Expression"))
            parts = tuple(next(iter(part.fields)) for part in given.get("TransactItems", ()))
            key = question.operation, given.get("TableName"), *texts, *parts, answer.error
            # DynamoDB Local refuses an empty text (both_dynamodbs.py).
            if key not in asked and "{'S': ''}" not in f"{state}{question}":
                asked[key] = state, question
    for state, question in asked.values():
        tables = _tables_of(question.parameters)
        yield tables[0], {name: [thaw(item) for item in state[name].fields.values()] for name in tables}, question


def _tables_of(request: Record) -> list[str]:
    if "TransactItems" in request:
        parts = [part for transacted in request["TransactItems"] for part in transacted.fields.values()]
        return sorted({part["TableName"] for part in parts})
    return [request.get("TableName") or next(iter(request["RequestItems"].fields))]


def test_each_request_of_the_worlds_is_answered_as_by_dynamodb_local(local: Any) -> None:
    outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for table, items, question in _asked_in_schedules():
        with Both(local, table, items.pop(table), **items) as both, suppress(ClientError):
            both.ask(question)
        outcomes[table].update(both.met)
    assert outcomes.keys() == {"slots", "tokens", "ledger", "downstreams", "requests"}
    assert all(met.keys() == {"", REFUSED} for met in outcomes.values()), outcomes


def test_any_request_is_answered_as_by_dynamodb_local(local: Any) -> None:
    met: Counter[str] = Counter()

    @share(0.5)
    @given(item=_perhaps(any_requests.ITEMS), questions=st.lists(any_requests.requests(), min_size=3, max_size=6))
    def answered_alike(item: Item | None, questions: list[Question]) -> None:
        with Both(local, TABLE, [] if item is None else [{"process_name": {"S": KEY}, **item}]) as both:
            for question in questions:
                with suppress(ClientError):
                    both.ask(question)
        met.update(both.met)

    answered_alike()
    # Conditions that hold nearly always or nearly never would prove nothing.
    assert min(met[""], met[REFUSED]) > met.total() / 20, met


def _perhaps(items: st.SearchStrategy[Item]) -> st.SearchStrategy[Item | None]:
    return st.sampled_from([True, True, True, True, True, False]).flatmap(lambda there: items if there else st.none())
