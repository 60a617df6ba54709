"""The outage's simulated services, its designs in a short run, and how its goals are judged."""

from __future__ import annotations

import copy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dev.benchmarks.outage import faults_report, outage_benchmark, partial_faults
from dev.benchmarks.outage.fragile_downstream import FragileDownstream
from dev.benchmarks.outage.other_breakers import RULES, OtherBreakers
from dev.benchmarks.outage.outage_report import goals
from dev.benchmarks.outage.outage_run import run, scenarios
from dev.benchmarks.outage.partial_faults import BREAKERS, CASES
from dev.benchmarks.outage.retry_designs import DESIGNS, PLAIN, UNWATCHED, WATCHING
from dev.benchmarks.outage.simulated_queue import QueuedMessage, SimulatedQueue
from dev.benchmarks.outage.simulated_table import SimulatedTable
from dev.benchmarks.outage.virtual_time import START, VirtualTime
from slotkeeper.retry.downstream.downstreams import Rejection
from slotkeeper.retry.errors import Failure
from slotkeeper.retry.ledger import Claimed, ClaimLost, Ledger
from slotkeeper.retry.message import Message
from slotkeeper.retry.policy import BUILT_IN
from tests.support.compared_table import ComparedTable
from tests.support.in_process_tables import LEDGER, Tables


def steps_of_a_ledger(ledger: Ledger, seed: int) -> list[Any]:
    """The outcomes of random steps of three deliveries on two requests."""
    random, outcomes, claims = Random(seed), [], dict[str, tuple[Message, Claimed]]()
    for number in range(60):
        now, token = START + number * 10, f"token-{random.randrange(3)}"
        message = Message(f"r-{random.randrange(2)}", {}, (START,) * random.randrange(3))
        step = random.choice(["claim", "claim", "record", "waiting", "dead", "succeeded", "defer"])
        try:
            if step == "claim":
                outcome: Any = ledger.claim(message, token, now, 35)
                if isinstance(outcome, Claimed):
                    claims[token] = (message, outcome)
            elif token not in claims:
                continue
            else:
                calls = {
                    "record": lambda held: ledger.record(*held, {"code": "a"}, "error"),
                    "defer": lambda held: ledger.defer(*held, {"code": "a"}, "error"),
                    "waiting": lambda held: ledger.settle_waiting(*held, START),
                    "dead": lambda held: ledger.settle_dead_lettered(*held),
                    "succeeded": lambda held: ledger.settle_succeeded(*held, "{}"),
                }
                outcome = calls[step](claims[token])
        except ClaimLost as error:
            outcome = str(error)
        outcomes.append((step, outcome))
    return outcomes


@pytest.mark.parametrize("seed", range(5))
def test_the_ledger_has_the_same_outcomes_and_rows_as_on_the_compared_dynamodb(seed: int) -> None:
    compared, simulated = Tables(), SimulatedTable("request_id")
    mine: Any = simulated
    theirs: Any = ComparedTable(compared)
    assert steps_of_a_ledger(Ledger(mine, LEDGER), seed) == steps_of_a_ledger(Ledger(theirs, LEDGER), seed)
    assert simulated.items == {key: compared.item(LEDGER, key) for key in simulated.items}
    assert len(simulated.items) == 2


def test_an_expression_that_is_not_simulated_is_refused() -> None:
    table = SimulatedTable("k")
    for condition in ("attribute_not_exists(k", "k = :a AND (k = :b", "k = :a k"):
        with pytest.raises((ValueError, IndexError)):
            table.put_item(Item={"k": {"S": "x"}}, ConditionExpression=condition, ExpressionAttributeValues={})


def received(queue: SimulatedQueue, time: VirtualTime, until: float) -> list[tuple[float, str, int]]:
    """What a consumer receives until a second: (second, body, receive count)."""
    found = []

    def consume() -> None:
        while True:
            message: QueuedMessage = queue.receive()
            found.append((time.elapsed, message.body, message.receives))

    time.start(consume)
    time.run(until)
    time.end()
    return found


def test_a_message_returns_after_its_visibility_timeout_and_is_dead_lettered_after_its_receives() -> None:
    time = VirtualTime()
    queue = SimulatedQueue(time, visibility=60, max_receives=2)
    queue.add("a")
    queue.add("b", delay=10)
    assert received(queue, time, 200) == [(0, "a", 1), (10, "b", 1), (60, "a", 2), (70, "b", 2)]
    assert [message.body for message in queue.dead] == ["a", "b"]


def test_a_hidden_message_returns_at_its_new_time_and_an_old_handle_hides_nothing() -> None:
    time = VirtualTime()
    queue = SimulatedQueue(time, visibility=60, max_receives=9)
    queue.add("a")
    hide = queue.change_message_visibility
    time.at(START + 1, lambda: hide(QueueUrl="work", ReceiptHandle="1#1", VisibilityTimeout=4))
    time.at(START + 6, lambda: hide(QueueUrl="work", ReceiptHandle="1#1", VisibilityTimeout=0))
    assert received(queue, time, 30) == [(0, "a", 1), (5, "a", 2)]


def test_the_downstream_refuses_callers_above_its_capacity_and_all_while_it_is_down() -> None:
    time = VirtualTime()
    downstream = FragileDownstream(time, ((0, 2), (10, 0)), Random(1))
    answers = []

    def call() -> None:
        try:
            downstream.call()
            answers.append("succeeded")
        except Exception as error:
            answers.append(type(error).__name__)

    for at in (0, 0, 0, 10):
        time.at(START + at, lambda: time.start(call))
    time.run(20)
    assert answers == ["RateLimited", "succeeded", "succeeded", "Unavailable"]


def test_a_run_is_the_same_again_and_ends_each_message_once() -> None:
    scenario = scenarios(0.05)["half"]
    for design in DESIGNS:
        first, again = run(design, scenario, 7), run(design, scenario, 7)
        assert first == again
        assert first["succeeded"] + first["dead_letters"] == int(scenario.seconds * scenario.per_second)
    assert run(WATCHING, scenario, 8) != run(WATCHING, scenario, 7)


def test_the_smallest_run_has_every_design_in_every_scenario_and_its_pictures(tmp_path: Path) -> None:
    outcome = outage_benchmark.measure(tmp_path, lambda *_: None, small=True)
    for name in scenarios():
        assert set(outcome.figures[name]) == set(DESIGNS)
    assert [len(grid.rows) for grid in outcome.grids] == [len(DESIGNS)] * 4 + [len(BREAKERS), 8]
    assert {path.name for path in tmp_path.iterdir()} == {"outage.png", "steps.png"}
    calls = {design: outcome.figures["steady"][design][0]["calls_in_outage"] for design in DESIGNS}
    assert calls[WATCHING] < calls[UNWATCHED]
    assert calls[WATCHING] < calls[PLAIN]


def outcomes(breakers: OtherBreakers, time: VirtualTime, answers: str) -> str:
    """What calls meet, one after the other, a second apart: as answered (s or f), or h, held back."""
    met = ""
    for answer in answers:
        asked = breakers.ask("a", BUILT_IN)
        if isinstance(asked, Rejection):
            met += "h"
        elif answer == "f":
            asked.failed(Failure(("Retryable",), "503"), 0.0)
            met += "f"
        else:
            asked.succeeded(0.0)
            met += "s"
        time.now += 1
    return met


@pytest.mark.parametrize(
    ("design", "answers", "met"),
    [
        ("gobreaker", "ffffff" + "s" * 60, "ffffff" + "h" * 59 + "s"),
        ("gobreaker", "fffffsfffffs", "fffffsfffffs"),
        ("resilience4j", "f" * 50 + "s" * 51, "f" * 50 + "s" * 50 + "h"),
        ("resilience4j", "f" * 49 + "s" * 52, "f" * 49 + "s" * 52),
        ("five in a row, 30 s", "fffff" + "s" * 30, "fffff" + "h" * 29 + "s"),
    ],
)
def test_the_other_breakers_have_the_documented_rules(design: str, answers: str, met: str) -> None:
    time = VirtualTime()
    assert outcomes(OtherBreakers(RULES[design], 3, time.clock), time, answers) == met


def test_a_task_that_ends_does_not_continue_the_task_that_has_started_it() -> None:
    time, slept = VirtualTime(), []

    def sleeper() -> None:
        time.start(lambda: None)
        time.sleep(10)
        slept.append(time.elapsed)

    time.start(sleeper)
    time.run(20)
    assert slept == [10]


FAULTS = {"completed": 0.96, "calls": 40, "spent": 1, "dead_letters": 0, "opened": 1, "wait": 0.6, "seconds": 200.0}


def faults(**changed: Any) -> Any:
    """Figures of all partial faults that meet every goal, except for the changed ones of the worker."""

    def of(arguments: Any) -> dict[str, Any]:
        is_changed = arguments["design"] == WATCHING and arguments.get("held_back") != 0
        return FAULTS | (changed if is_changed else {})

    return [(job, of(job[1])) for job in partial_faults.jobs(1.0)]


def test_each_goal_of_the_partial_faults_is_missed_by_a_figure_beyond_it() -> None:
    assert {case for case, _ in partial_faults.jobs(1.0)} == set(CASES)
    assert all(goal.met for goal in faults_report.goals(faults()))
    beyond = ({"completed": 0.91}, {"calls": 41}, {"spent": 2}, {"wait": 2.7}, {"dead_letters": 1}, {"opened": 0})
    for change in (*beyond, {"seconds": 261.0}):
        assert [goal.met for goal in faults_report.goals(faults(**change))].count(False) == 1, change


def figures(**changed: Any) -> Any:
    """Figures that meet every goal, except for the changed ones of the worker."""
    outage = {"calls_in_outage": 20, "spent": 1, "dead_letters": 0, "first_success": 5.0} | changed
    step = {"windows": 5, "mean": 0.95} | {name: changed[name] for name in ("windows", "mean") if name in changed}
    found = {name: {WATCHING: [outage], UNWATCHED: [{"calls_in_outage": 4000}]} for name in ("steady", "burst", "half")}
    return copy.deepcopy(found | {"steps": {WATCHING: [{"steps": [step]}]}})


def test_each_goal_is_missed_by_a_figure_beyond_it() -> None:
    assert all(goal.met for goal in goals(figures()))
    beyond = (
        {"calls_in_outage": 201},
        {"spent": 2},
        {"dead_letters": 1},
        {"first_success": 32.1},
        {"first_success": None},
        {"windows": 11},
        {"windows": None},
        {"mean": 0.89},
        {"mean": None},
    )
    for change in beyond:
        assert [goal.met for goal in goals(figures(**change))].count(False) == 1, change
