"""The simulated DynamoDB answers as DynamoDB Local does: the product's steps, and generated expressions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from dev.emulator.dynamodb_local import DynamoDbLocal
from slotkeeper.slots.protocol import Candidate, Full, Granted, Misconfigured, Reservation, Slots
from tests.simulation import any_requests
from tests.simulation.both_dynamodbs import REFUSED, Both, make_tables
from tests.simulation.product_items import ITEMS, KEY, NOW, Item
from tests.simulation.product_steps import STEPS, all_steps, step_names
from tests.support.profiles import share


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of DynamoDB Local with the simulation's tables."""
    with DynamoDbLocal.start(tmp_path_factory.mktemp("dynamodb-local") / "dynamodb.log") as running:
        client = running.client()
        make_tables(client)
        yield client


def test_every_step_of_the_product_is_tested() -> None:
    assert step_names() == all_steps()


@pytest.mark.parametrize(("table", "name"), [(table, name) for table, steps in STEPS.items() for name in steps])
def test_a_step_of_the_product_is_answered_as_by_dynamodb_local(table: str, name: str, local: Any) -> None:
    others = st.one_of(*STEPS[table].values())

    @share(0.06)
    @given(item=_perhaps(ITEMS[table]), before=st.lists(others, max_size=1), step=STEPS[table][name])
    def answered_alike(item: Any, before: Any, step: Any) -> None:
        with Both(local, table, item) as both:
            for taken in (*before, step, step):
                taken(both)

    answered_alike()


@pytest.mark.parametrize(
    ("in_use", "limit", "outcome"),
    [
        ("9", {"N": "10"}, Granted),
        ("10", {"N": "9"}, Full),
        ("10", {"N": "10"}, Full),
        ("9", {"S": "10"}, Misconfigured),
    ],
)
def test_a_limit_is_compared_as_a_number(in_use: str, limit: Item, outcome: type[Reservation], local: Any) -> None:
    item = {"slot_limit": limit, "slots_in_use": {"N": in_use}, "holders": {"M": {}}, "target": {"S": "j"}}
    with Both(local, "slots", item) as both:
        assert isinstance(Slots(both.client("dynamodb"), "slots").reserve(Candidate(KEY, "p-1"), NOW), outcome)


def test_any_request_is_answered_as_by_dynamodb_local(local: Any) -> None:
    met: Counter[str] = Counter()

    @share(0.5)
    @given(item=_perhaps(any_requests.ITEMS), questions=st.lists(any_requests.requests(), min_size=3, max_size=6))
    def answered_alike(item: Any, questions: Any) -> None:
        with Both(local, any_requests.TABLE, item) as both:
            for question in questions:
                with suppress(ClientError):
                    both.ask(question)
        met.update(both.met)

    answered_alike()
    # Conditions that hold nearly always or nearly never would prove nothing.
    assert min(met[""], met[REFUSED]) > met.total() / 20, met


def _perhaps(items: st.SearchStrategy[Item]) -> st.SearchStrategy[Item | None]:
    return st.sampled_from([True, True, True, True, True, False]).flatmap(lambda there: items if there else st.none())
