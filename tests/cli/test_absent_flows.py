"""Commands on a stack that was deployed without an optional flow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slotkeeper_cli.stack_connection import FLOWS
from tests.cli.operator_account import Operator
from tests.support.template import parsed_template

CONDITIONS = {"chatbot": ("HasChatbot", "HasRefresher"), "worker": ("HasWorker",)}


@pytest.fixture
def slots_alone(operator: Operator) -> Iterator[Operator]:
    """An operator of a stack without the optional flows."""
    taken = {name: operator.outputs.pop(name) for flow in FLOWS for name in filter(flow.has, list(operator.outputs))}
    yield operator
    operator.outputs |= taken


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
    assert seen["queues"].keys() == {"RequestQueue", "RequestDeadLetterQueue", "FailedRequestQueue"}
    assert seen["not_deployed"] == ["chatbot", "worker"]
    assert "Not deployed: chatbot (deploy with ChatApiUrl=https://...), worker" in slots_alone.run("status").stdout
    assert [one["queue"] for one in slots_alone.run("dlq", "list", "--json").json["queues"]] == ["request", "failed"]


def test_stack_outputs_names_the_flows_that_have_none_on_stderr(slots_alone: Operator) -> None:
    asked = slots_alone.run("stack", "outputs", "--export")
    assert "WORK_QUEUE_URL" not in asked.stdout
    assert "The worker is not deployed, and its outputs are missing: deploy with DeployWorker=true." in asked.stderr
    assert slots_alone.run("stack", "outputs", "--json").json["not_deployed"] == ["chatbot", "worker"]
