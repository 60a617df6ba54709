"""Each row of the table on the simulated and on the embedded AWS; both in any order of calls."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.facts.account import Account
from tests.facts.execution_facts import Executions
from tests.facts.facts import EMBEDDED, SIMULATED, Fact
from tests.facts.queues import Queue
from tests.facts.simulated import SimulatedAccount
from tests.facts.smoke import FACTS as ASKED
from tests.facts.table import FACTS
from tests.profiles import share


def _shown_by(place: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("fact", [each for each in FACTS if place in each.on], ids=attrgetter("name"))


@_shown_by(SIMULATED)
def test_the_simulated_aws_answers_as_aws(fact: Fact) -> None:
    _check(fact, SimulatedAccount())


@_shown_by(EMBEDDED)
def test_the_embedded_aws_answers_as_aws(fact: Fact, embedded: Account) -> None:
    _check(fact, embedded)


def _check(fact: Fact, account: Account) -> None:
    answer = fact.ask(account)
    if not fact.agrees(answer):
        pytest.fail(fact.difference(answer), pytrace=False)


@pytest.mark.parametrize("fact", [each for each in FACTS if EMBEDDED not in each.on], ids=attrgetter("name"))
def test_what_a_row_leaves_to_aws_the_embedded_aws_does_not_show(fact: Fact, embedded: Account) -> None:
    """Otherwise `on` is outdated, and hides a row that could be shown here."""
    try:
        answer = fact.ask(embedded)
    except Exception:  # it has no such call, or no such end
        return
    assert not fact.agrees(answer)


def test_each_predicate_refuses_another_answer_and_each_row_has_a_name_of_its_own() -> None:
    facts = {id(fact): fact for fact in (*FACTS, *ASKED)}.values()
    predicates = [fact for fact in facts if callable(fact.expected)]
    assert predicates
    assert [fact.name for fact in predicates if fact.agrees(fact.unlike)] == []
    names = [*(fact.name for fact in facts), *{fact.group for fact in facts}]
    assert len(set(names)) == len(names)


NAMES = st.sampled_from(["one", "two"])
CALLS = st.one_of(
    st.tuples(st.just("start"), NAMES, st.sampled_from([{}, {"end": "SUCCEEDED"}, {"end": "FAILED"}])),
    st.tuples(st.sampled_from(["stop", "redrive", "describe"]), NAMES),
    st.tuples(st.just("listed"), st.sampled_from(["RUNNING", "SUCCEEDED", "FAILED", "ABORTED", ""])),
)


def test_simulated_executions_answer_as_the_embedded_aws_in_any_order_of_calls(embedded: Account) -> None:
    met: Counter[tuple[str, str]] = Counter()

    @share(0.4)
    @given(calls=st.lists(CALLS, min_size=8, max_size=16))
    def answered_alike(calls: list[Any]) -> None:
        both = Executions(embedded), Executions(SimulatedAccount())
        for name, *arguments in calls:
            known = both[1].describe(arguments[0])
            if name == "stop" and isinstance(known, dict) and known["status"] != "RUNNING":
                continue  # the embedded AWS refuses it, with an error that the API Reference does not have
            answers = [getattr(each, name)(*arguments) for each in both]
            assert answers[0] == answers[1], (name, *arguments)
            met[name, answers[0] if isinstance(answers[0], str) else ""] += 1

    answered_alike()
    assert met.keys() >= {("start", "ExecutionAlreadyExists"), ("redrive", "ExecutionNotRedrivable")} | {
        (name, answer) for name in ("stop", "redrive") for answer in ("accepted", "ExecutionDoesNotExist")
    }


HANDLES = st.integers(0, 5)  # modulo their number
RECEIVE = st.tuples(st.just("receive"), st.sampled_from([1, 10]))
QUEUE_CALLS = (
    st.tuples(st.tuples(st.just("send"), st.sampled_from("123"), st.sampled_from("ab"))),
    st.tuples(RECEIVE),
    st.tuples(st.tuples(st.just("delete"), HANDLES)),
)
# Only of a standard queue: no message of a FIFO queue is hidden by itself.
HIDES = (
    st.tuples(st.tuples(st.just("hide"), HANDLES, st.just(0)), RECEIVE),  # older handles are outdated then
    st.tuples(st.tuples(st.just("hide"), HANDLES, st.sampled_from([0, 60]))),
)
BEGIN: list[Any] = [("send", "1", "a"), ("send", "2", "a"), ("send", "1", "b"), ("receive", 1)]


@pytest.mark.parametrize("fifo", [True, False])
def test_the_simulated_queue_answers_as_the_embedded_aws_in_any_order_of_calls(embedded: Account, fifo: bool) -> None:
    """The simulation follows the engine's order among groups, because SQS defines none."""
    met: Counter[tuple[str, str]] = Counter()

    @share(0.2)
    @given(calls=st.lists(st.one_of(*QUEUE_CALLS, *(() if fifo else HIDES)), min_size=6, max_size=14))
    def answered_alike(calls: list[Any]) -> None:
        both = Queue(embedded, fifo=fifo), Queue(SimulatedAccount(), fifo=fifo)
        handles: list[tuple[str, str]] = []
        for name, *arguments in [*BEGIN, *chain(*calls), ("receive", 10)]:
            if name == "send":
                body, group = arguments
                for queue in both:
                    queue.send(group + body, group)
            elif name == "receive":
                received = [queue.receive(*arguments) for queue in both]
                assert [*received[0]] == [*received[1]], calls
                handles += zip(received[0].values(), received[1].values(), strict=True)
            else:
                number, *seconds = arguments
                pair = zip(both, handles[number % len(handles)], strict=True)
                codes = [getattr(queue, name)(handle, *seconds) for queue, handle in pair]
                assert codes[0] == codes[1], calls
                met[name, codes[0]] += 1

    answered_alike()
    hidden = set() if fifo else {("hide", "accepted"), ("hide", "InvalidParameterValue")}
    assert met.keys() >= {("delete", "accepted")} | hidden
