"""`slotkeeper holder release`: only the slot of a dead holder is released, and every check is reported."""

from __future__ import annotations

import pytest

from slotkeeper_cli.commands import holder
from tests.cli.account_contents import edit
from tests.cli.operator_account import Operator, StubbedCalls
from tests.support.module_time import replace_time


def test_release_frees_the_slot_of_a_dead_holder(operator: Operator) -> None:
    name = operator.hold("a")
    operator.stop_long_ago(name)

    ended = operator.run("holder", "release", "a", "--json")

    assert (ended.exit_code, ended.json["released"], ended.json["request_id"]) == (0, name, "a")
    assert ended.json["checked"] == [
        "its execution is ABORTED",
        "no live Glue run of it (check 1 of 2, Glue job sample-job)",
        "no live Glue run of it (check 2 of 2, Glue job sample-job)",
    ]
    assert (operator.process().slots_in_use, dict(operator.process().holders)) == (0, {})
    assert operator.rings() == [{"process": "sample"}]


def test_release_changes_grants(operator: Operator) -> None:
    """A dispatch may have read the queue before the end of the request was recorded."""
    operator.stop_long_ago(operator.hold("a"))
    before = operator.process().grants

    operator.run("holder", "release", "a")

    assert operator.process().grants == before + 1


def test_release_is_refused_while_a_glue_run_is_alive(operator: Operator) -> None:
    name = operator.hold("a")
    run = operator.run_glue(name)
    operator.stop_long_ago(name)

    reason = operator.refuses("holder", "release", name)
    assert f"Glue run {run} of job sample-job has not ended. The janitor releases the slot by about" in reason


def test_release_is_refused_if_a_run_shows_at_the_second_check(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A StartJobRun was under way when the workflow was stopped."""
    name = operator.hold("a")
    operator.stop_long_ago(name)
    gaps: list[float] = []

    def begin(gap: float) -> None:
        gaps.append(gap)
        operator.run_glue(name)

    replace_time(monkeypatch, holder, sleep=begin)

    operator.refuses("holder", "release", name)
    assert gaps == [30]


def test_release_is_refused_within_the_grace_time(operator: Operator) -> None:
    """A run that was started the moment before does not show yet."""
    name = operator.hold("a")
    operator.stop(name)

    reason = operator.refuses("holder", "release", name)
    assert "its execution is ABORTED, but a Glue run that it started last may not show yet; wait" in reason
    assert "The janitor releases the slot by about" in reason
    assert "alive" not in reason


def test_release_is_refused_for_a_day_if_a_confirmed_holder_has_no_execution(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DescribeExecution is eventually consistent, and a run that Glue has refused so far does not show."""
    name = operator.hold("a", started=False)
    replace_time(monkeypatch, holder, time=lambda: 1_790_000_300.0)

    assert "The janitor decides a day after the slot was reserved, at 20" in operator.refuses("holder", "release", name)
    replace_time(monkeypatch, holder, time=lambda: 1_790_000_000.0 + 2 * 86_400)
    assert operator.run("holder", "release", name).exit_code == 0


def test_release_of_a_holder_whose_job_was_deleted(operator: Operator) -> None:
    name = operator.hold("a")
    operator.stop_long_ago(name)
    operator.glue.delete_job(JobName="sample-job")

    assert operator.run("holder", "release", name).exit_code == 0


def test_release_of_a_reservation_needs_force(operator: Operator) -> None:
    """A dispatch starts it again by name, however old it is."""
    name = operator.hold("a", started=False, confirmed=False)

    reason = operator.refuses("holder", "release", "a")
    assert "its starter, or the next dispatch, starts its workflow" in reason
    assert operator.run("holder", "release", "a", "--force", "--yes").exit_code == 0
    assert operator.process().holders == {}
    assert operator.row(name).queued is not None


def test_release_fails_if_the_holder_changes_between_the_checks(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = operator.hold("a")
    operator.stop_long_ago(name)

    def again(_: float) -> None:
        held = operator.process().holders[name].raw
        edit(operator, f"holders/{name}", {"M": {**held, "since": {"N": "1790000500"}}})

    replace_time(monkeypatch, holder, sleep=again)

    ended = operator.run("holder", "release", name)

    assert ended.exit_code == 1
    assert operator.process().slots_in_use == 1


def test_release_while_the_execution_runs_needs_force_and_is_audited(operator: Operator) -> None:
    name = operator.hold("a")

    reason = operator.refuses("holder", "release", name)
    assert f"a ({name}) may still use its slot: its execution is RUNNING." in reason
    assert "run slotkeeper request cancel a --stop." in reason
    operator.asks("holder", "release", name, "--force")
    assert operator.run("holder", "release", name, "--force", "--yes").exit_code == 0

    (line,) = operator.audited()
    assert (line["action"], line["execution"], line["request_id"]) == ("holder release", name, "a")
    assert line["forced"] is True
    assert line["alive"] == "its execution is RUNNING"
    assert operator.process().slots_in_use == 0


def test_release_frees_the_weight_of_the_holder(operator: Operator) -> None:
    operator.processes.set_limit("sample", 6)
    operator.hold("b", weight=1)
    name = operator.hold("a", weight=5)
    assert "With --force its slot, weight 5, is released now" in operator.run("holder", "release", name).stderr
    operator.stop_long_ago(name)

    ended = operator.run("holder", "release", name)

    assert "its slot of sample, weight 5, is released." in ended.stdout
    assert operator.process().slots_in_use == 1
    assert operator.audited()[-1]["weight"] == 5


def test_release_of_a_request_that_holds_two_slots_asks_for_the_execution(operator: Operator) -> None:
    operator.processes.create("other", 1, "sample-job")
    names = [operator.hold("a", process) for process in ("other", "sample")]

    assert f"the name of one execution, {', '.join(names)}" in operator.refuses("holder", "release", "a")


def test_a_holder_whose_work_may_not_be_read_is_released_with_force_only(operator: Operator) -> None:
    name = operator.hold("a")
    operator.stop_long_ago(name)
    denied = {"Error": {"Code": "AccessDeniedException", "Message": "no"}}

    with StubbedCalls("glue", {"GetJobRuns": lambda _: denied}):
        reason = operator.refuses("holder", "release", name)
    assert "you may not read whether its Glue run of Glue job sample-job has ended" in reason

    with StubbedCalls("glue", {"GetJobRuns": lambda _: denied}):
        assert operator.run("holder", "release", name, "--force", "--yes").exit_code == 0
    assert operator.process().slots_in_use == 0
