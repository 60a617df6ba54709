"""The benchmark of scale: its counts are the product's, and its dollars are arithmetic that can be checked by hand."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cfnlint.decode import cfn_yaml

from dev.benchmarks.outcome import Outcome
from dev.benchmarks.scale import dollars, part, prices
from dev.benchmarks.scale.dollars import Assumed
from dev.benchmarks.scale.drive import ENVIRONMENT
from dev.benchmarks.scale.runs import run
from tests.simulation.slots_world import Plan, SlotsWorld
from tests.unit.test_document_tables import COSTS
from tests.workflow.interpreter import walks

ROOT = Path(__file__).parents[2]
TEMPLATE: dict[str, Any] = cfn_yaml.load(str(ROOT / "template.yaml"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("scale")
    return part.measure(folder, lambda _text, _share: None, small=True)


def test_a_request_that_had_to_wait_makes_the_calls_that_the_page_of_costs_says(small: Outcome) -> None:
    for load in small.figures["loads"]:
        assert load["waited"] == load["requests"] - load["processes"] * load["limit"]
        assert load["all"]["lambda.starter"] == load["requests"] + load["waited"]
        counted = {name: most for name, (_, most) in load["of_a_waiter"].items()}
        sqs = sum(number for name, number in counted.items() if name.startswith("sqs."))
        assert f"x {counted['transitions']} transitions x" in COSTS
        assert f"x {counted['dynamodb.update_item']} x ${prices.DYNAMODB_WRITE:.9f}" in COSTS
        assert f"x {counted['dynamodb.get_item']} x ${prices.DYNAMODB_READ:.9f}" in COSTS
        assert f"x {sqs} x ${prices.SQS_FIFO:.7f}" in COSTS
        assert counted["lambda.starter"] == 2


def test_rounds_of_the_janitor_call_no_more_for_more_processes(small: Outcome) -> None:
    calls: dict[str, set[int]] = {}
    for each in small.figures["rounds"]:
        calls.setdefault(each["scene"]["name"], set()).add(
            sum(number for name, number in each["rounds"][-1]["counts"].items() if "." in name)
        )
    assert len(calls["nobody has ever waited"]) == 1
    assert len(calls["idle, each had a waiter once"]) == 1
    assert len(calls["10 slots, all taken, others wait"]) == 1


def test_what_it_brings_home_can_be_shown_and_written(small: Outcome) -> None:
    assert all(picture.stat().st_size > 10_000 for picture, _ in small.pictures)
    for grid in small.grids:
        assert grid.rich().row_count == len(grid.rows)
        assert all(len(row) == len(grid.columns) for row in grid.rows)
    json.dumps(small.figures)


class Counting(SlotsWorld):
    """The whole simulation, one step after the other, of which every call is counted but the janitor's."""

    def call(self, name: str, how: str) -> None:
        question = self.actors[name].node.question
        assert question is not None
        if name != "round":
            self.counted[f"{question.service}.{question.operation}"] += 1
        super().call(name, how)


def test_the_pieces_answer_as_the_whole_simulation_does() -> None:
    """A queue cut off behind its head, a table of one item, a workflow under another's name: none of it shows."""
    world = Counting(Plan(tuple("abcdef"), run_seconds=(60,)))
    world.counted = Counter()
    while choices := world.steps() or world.time_steps():
        world.take(choices[0])
    world.check_end()
    (told,) = run("loads", [{"processes": 1, "requests": 6, "limit": 1, "seconds": [60, 60]}])
    assert world.counted == {name: told["all"][name] for name in world.counted}
    assert {"dynamodb.update_item", "sqs.change_message_visibility", "glue.start_job_run"} < set(world.counted)


def test_the_prices_are_those_of_the_page_of_costs() -> None:
    on_the_page = {float(price) for price in re.findall(r"\$(\d[\d.]*)", COSTS)}
    known = {value for name, value in vars(prices).items() if name.isupper()}
    # Of alarms, dashboards, secrets and the API's gateway there are none here.
    assert on_the_page - known == {0.10, 3.00, 0.40, 0.0000035}


def test_a_thousand_requests_cost_what_the_page_says() -> None:
    parts = dollars.ours(Assumed(requests=1000, slots=4)).parts
    told = re.findall(
        r"^\| (Step Functions|Lambda|its invocations|DynamoDB \w+|SQS)\b.* \| ([\d.]+) \|$", _thousand(), re.M
    )
    page: Counter[str] = Counter()
    for name, sum_ in told:
        page["Lambda" if name == "its invocations" else re.sub(r" (reads|writes)$", "", name)] += float(sum_)
    for name, sum_ in page.items():
        assert parts[name] == pytest.approx(sum_, abs=0.0002), name
    assert len(page) == 4


def test_a_day_of_polling_by_hand() -> None:
    """10,000 requests a day wait 600 s each, and a loop looks every 30 s: 20 looks of 4 states, and 5 to run."""
    day = dollars.workflow_polling(Assumed(requests=10_000, slots=1), 30).parts["Step Functions"]
    assert day == pytest.approx(10_000 * 85 * 0.000025)
    # One process: its head is looked at 2,880 times a day.
    polled = dollars.visibility_polling(Assumed(requests=10_000, slots=10), 30)
    assert (polled.looks, polled.idle) == (pytest.approx(0.288), 15)


def test_the_states_that_are_paid_for_are_those_that_there_are() -> None:
    straight = min(len(walk.names) for walk in walks() if walk.status == "SUCCEEDED" and "WakeWaiting" in walk.names)
    assert straight == dollars.TRANSITIONS


def test_the_janitors_times_and_the_functions_settings_are_the_templates() -> None:
    assert TEMPLATE["Resources"]["JanitorFunction"]["Properties"]["Timeout"] == part.ROUND_TIMEOUT
    assert TEMPLATE["Parameters"]["JanitorSchedule"]["Default"] == "rate(1 minute)"
    assert part.ROUND_PERIOD == 60
    for function in ("StarterFunction", "JanitorFunction"):
        given = TEMPLATE["Resources"][function]["Properties"]["Environment"]["Variables"]
        assert set(given) <= set(ENVIRONMENT)


@pytest.mark.parametrize("power", [1.0, 1.5])
def test_the_exponent_of_a_power_is_its_exponent(power: float) -> None:
    driven = [{"requests": requests, "seconds": 0.002 * requests**power} for requests in (100, 1000, 10_000)]
    assert part.exponent(driven, "seconds") == pytest.approx(power)


def _thousand() -> str:
    return COSTS.split("## 1,000 workflows")[1].split("\n## ")[0]
