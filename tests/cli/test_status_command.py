"""`slotkeeper status`: processes, holders, waiting requests and queues."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.retry.delivery import TooLarge
from slotkeeper.retry.ledger import MalformedRow
from slotkeeper.retry.message import InvalidMessage
from slotkeeper_cli.commands import status
from tests.cli.malformed_items import add_malformed, edit
from tests.cli.operator_account import Operator


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
    unknown = operator.run("status", "sampel")
    assert unknown.exit_code == 4
    assert "The processes are: sample, second" in unknown.stderr


def test_status_counts_messages(operator: Operator) -> None:
    operator.send("a")

    queues = operator.run("status", "--json").json["queues"]

    assert queues["RequestQueue"] == {"visible": 1, "in_flight": 0, "delayed": 0}
    assert queues["WorkDeadLetterQueue"]["visible"] == 0


def test_status_refuses_watch_with_json(operator: Operator) -> None:
    assert operator.run("status", "--watch", "1", "--json").exit_code == 2


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
