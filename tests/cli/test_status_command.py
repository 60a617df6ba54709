"""`slotkeeper status`, and commands on a stack that was deployed without an optional flow."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.retry.delivery import TooLarge
from slotkeeper.retry.ledger import MalformedRow
from slotkeeper.retry.message import InvalidMessage
from slotkeeper_cli.commands import status
from slotkeeper_cli.stack_connection import FLOWS
from tests.cli.account_contents import add_malformed, edit
from tests.cli.operator_account import Operator
from tests.support.template import parsed_template


def _only(seen: Any) -> Any:
    (process,) = seen["processes"]
    return process


def test_status_shows_a_holder_with_age_execution_and_glue_run(operator: Operator) -> None:
    name = operator.hold("a")
    run = operator.run_glue(name)

    process = _only(operator.run("status", "--json").json)

    (holder,) = process["holders"]
    assert (process["slots_in_use"], process["slot_limit"]) == (1, 1)
    assert (holder["execution"], holder["request_id"]) == (name, "a")
    assert holder["execution_status"] == "RUNNING"
    assert holder["since"] == "2026-09-21T14:13:20Z"
    assert holder["age_seconds"] > 0
    assert holder["glue_run"]["id"] == run
    assert holder["link"].endswith(f"execution:Workflow:{name}")
    assert holder["link"].startswith("https://us-east-1.console")
    operator.stop(name)
    assert _only(operator.run("status", "--json").json)["holders"][0]["execution_status"] == "ABORTED"


def test_status_reports_drift_pause_and_malformed_items(operator: Operator) -> None:
    operator.hold("a")
    operator.processes.pause("sample")
    edit(operator, "slots_in_use", {"N": "2"})
    add_malformed(operator)

    seen, shown = operator.run("status", "--json").json, operator.run("status").stdout

    assert _only(seen)["has_drifted"]
    assert _only(seen)["paused"]
    assert "process odd" in seen["malformed"][0]
    assert "PAUSED" in shown
    assert "DRIFTED: 1 holder\n" in shown


def test_status_of_one_process(operator: Operator) -> None:
    operator.processes.create("second", 2, "sample-job")

    assert _only(operator.run("status", "second", "--json").json)["name"] == "second"


def test_status_counts_messages(operator: Operator) -> None:
    operator.send("a")

    queues = operator.run("status", "--json").json["queues"]

    assert queues["RequestQueue"] == {"visible": 1, "in_flight": 0, "delayed": 0}
    assert queues["WorkDeadLetterQueue"]["visible"] == 0


def test_common_options_before_the_command_apply_unless_repeated_after_it(operator: Operator) -> None:
    assert operator.run("--json", "status").json["stack"] == "slotkeeper"
    assert operator.run("--stack", "nowhere", "status").exit_code == 4
    assert operator.run("--stack", "nowhere", "status", "--stack", "slotkeeper").exit_code == 0


@pytest.mark.parametrize("error", [TooLarge("too large"), InvalidMessage("too odd"), MalformedRow("too malformed")])
def test_an_error_of_the_layer_is_printed_without_traceback(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(status, "read_status", fail)

    ended = operator.run("status")

    assert (ended.exit_code, ended.stderr) == (1, f"slotkeeper: {error}\n")


CONDITIONS = {"chatbot": ("HasChatbot", "HasRefresher"), "worker": ("HasWorker",)}


@pytest.fixture
def slots_alone(operator: Operator) -> Operator:
    """An operator of a stack without the optional flows."""
    for name in [name for flow in FLOWS for name in filter(flow.has, operator.outputs)]:
        del operator.outputs[name]
    return operator


def test_the_outputs_of_each_flow_are_those_of_the_template() -> None:
    outputs = parsed_template()["Outputs"]
    for flow in FLOWS:
        of_condition = {name for name, each in outputs.items() if each.get("Condition") in CONDITIONS[flow.name]}
        assert of_condition == set(filter(flow.has, outputs))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("token", "show"), "the chatbot is not deployed in this stack: deploy the stack with ChatApiUrl=https://..."),
        (("retry", "list"), "the worker is not deployed in this stack: deploy the stack with DeployWorker=true"),
        (("dlq", "show", "work"), "the worker is not deployed in this stack"),
        (("dlq", "redrive", "schedule", "--all", "--yes"), "the worker is not deployed in this stack"),
    ],
)
def test_a_command_of_an_absent_flow_names_its_parameter(
    slots_alone: Operator, arguments: tuple[str, ...], expected: str
) -> None:
    ended = slots_alone.run(*arguments)
    assert (ended.exit_code, expected in ended.stderr) == (4, True)


def test_status_and_dlq_list_show_the_deployed_queues_only(slots_alone: Operator) -> None:
    seen = slots_alone.run("status", "--json").json
    assert seen["queues"].keys() == {"RequestQueue", "DispatchQueue", "EndingQueue", "RequestDeadLetterQueue"}
    assert seen["not_deployed"] == ["chatbot", "worker"]
    assert "Not deployed: chatbot (deploy with ChatApiUrl=https://...), worker" in slots_alone.run("status").stdout
    assert [one["queue"] for one in slots_alone.run("dlq", "list", "--json").json["queues"]] == ["request"]


def test_stack_outputs_names_the_flows_that_have_none_on_stderr(slots_alone: Operator) -> None:
    asked = slots_alone.run("stack", "outputs", "--export")
    assert "WORK_QUEUE_URL" not in asked.stdout
    assert "The worker is not deployed, and its outputs are missing: deploy with DeployWorker=true." in asked.stderr
    assert slots_alone.run("stack", "outputs", "--json").json["not_deployed"] == ["chatbot", "worker"]
