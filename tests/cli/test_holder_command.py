"""`slotkeeper holder release`: a slot is released only once nothing uses it, and every check is reported."""

from __future__ import annotations

import pytest

from slotkeeper_cli.commands import holder
from tests.cli.operator_account import Operator
from tests.support.module_time import replace_time


def _end(operator: Operator, name: str) -> None:
    """Its execution is over, for as long as the stack asks."""
    operator.parameters["GraceSeconds"] = "0"
    operator.stop(name)


def test_a_holder_whose_execution_and_runs_are_over_is_released(operator: Operator) -> None:
    name = operator.hold("a")
    _end(operator, name)

    ended = operator.run("holder", "release", name, "--json")

    assert ended.exit_code == 0
    assert ended.json["checked"] == [
        "its execution is ABORTED",
        "no live Glue run of it (check 1 of 2, job sample-job)",
        "no live Glue run of it (check 2 of 2, job sample-job)",
    ]
    assert (operator.process().slots_in_use, dict(operator.process().holders)) == (0, {})


def test_one_that_runs_is_refused(operator: Operator) -> None:
    name = operator.hold("a")

    ended = operator.run("holder", "release", name)

    assert ended.exit_code == 3
    assert "its execution is RUNNING" in ended.stderr
    assert operator.process().slots_in_use == 1
    assert operator.audited() == []


def test_one_whose_glue_run_outlives_its_execution_is_refused(operator: Operator) -> None:
    name = operator.hold("a")
    run = operator.run_glue(name)
    _end(operator, name)

    ended = operator.run("holder", "release", name)

    assert ended.exit_code == 3
    assert run in ended.stderr
    assert operator.process().slots_in_use == 1


def test_a_run_that_shows_only_at_the_second_check_counts(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A StartJobRun was under way when the workflow was stopped."""
    name = operator.hold("a")
    _end(operator, name)
    gaps: list[float] = []

    def begin(gap: float) -> None:
        gaps.append(gap)
        operator.run_glue(name)

    replace_time(monkeypatch, holder, sleep=begin)

    assert operator.run("holder", "release", name).exit_code == 3
    assert gaps == [30]
    assert operator.process().slots_in_use == 1


def test_one_whose_execution_has_just_ended_may_have_a_run_on_the_way(operator: Operator) -> None:
    """Step Functions may have asked Glue for it the moment before, and no look shows it yet."""
    name = operator.hold("a")
    operator.stop(name)

    ended = operator.run("holder", "release", name)

    assert ended.exit_code == 3
    assert "may not show yet; wait" in ended.stderr
    assert operator.process().slots_in_use == 1


def test_one_that_runs_and_that_step_functions_does_not_show_yet_is_refused(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DescribeExecution is eventually consistent, and a run that Glue refuses for now is no run that a look shows."""
    name = operator.hold("a", started=False)
    replace_time(monkeypatch, holder, time=lambda: 1_790_000_300.0)

    assert operator.run("holder", "release", name).exit_code == 3
    replace_time(monkeypatch, holder, time=lambda: 1_790_000_000.0 + 2 * 86_400)
    assert operator.run("holder", "release", name).exit_code == 0


def test_a_job_that_is_gone_has_no_run_alive(operator: Operator) -> None:
    name = operator.hold("a")
    _end(operator, name)
    operator.glue.delete_job(JobName="sample-job")

    assert operator.run("holder", "release", name).exit_code == 0


def test_an_old_reservation_without_execution_is_released(operator: Operator) -> None:
    name = operator.hold("a", started=False, confirmed=False)

    assert operator.run("holder", "release", name).exit_code == 0
    assert operator.process().slots_in_use == 0


def test_a_young_reservation_is_its_starters(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    name = operator.hold("a", started=False, confirmed=False)
    replace_time(monkeypatch, holder, time=lambda: 1_790_000_100.0)

    ended = operator.run("holder", "release", name)

    assert ended.exit_code == 3
    assert "wait 20 s" in ended.stderr


def test_a_holder_that_changes_between_the_checks_keeps_its_slot(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = operator.hold("a", confirmed=False)
    _end(operator, name)
    operator.dynamodb.update_item(
        TableName=operator.outputs["SlotTableName"],
        Key={"process_name": {"S": "sample"}},
        UpdateExpression="SET holders.#me.since = :later, holders.#me.#state = :running",
        ExpressionAttributeNames={"#me": name, "#state": "state"},
        ExpressionAttributeValues={":later": {"N": "1790000001"}, ":running": {"S": "RUNNING"}},
    )

    def again(_: float) -> None:
        holder = operator.process().holders[name]
        operator.slots.release("sample", name, holder.raw)
        operator.slots.reserve("sample", name, 1_790_000_500.0)

    replace_time(monkeypatch, holder, sleep=again)

    ended = operator.run("holder", "release", name)

    assert ended.exit_code == 1
    assert operator.process().slots_in_use == 1


def test_forced_it_is_freed_with_an_audit_line_that_says_so(operator: Operator) -> None:
    name = operator.hold("a")

    assert operator.run("holder", "release", name, "--force").exit_code == 3, "nobody confirmed"
    assert operator.run("holder", "release", name, "--force", "--yes").exit_code == 0

    (line,) = operator.audited()
    assert (line["action"], line["execution"], line["forced"]) == ("holder release", name, True)
    assert line["alive"] == "its execution is RUNNING"
    assert operator.process().slots_in_use == 0


def test_the_first_waiting_request_is_woken(operator: Operator, woken: list[str]) -> None:
    name = operator.hold("a")
    second = operator.send("b")
    operator.slots.wait("sample", operator.workflow_name(second), second)
    _end(operator, name)
    operator.run("holder", "release", name)

    assert woken == ["handle-b"]


def test_an_unknown_holder_is_not_found(operator: Operator) -> None:
    assert operator.run("holder", "release", "sample-0123").exit_code == 4
