"""`slotkeeper holder release`: only the slot of a dead holder is released, and every check is reported."""

from __future__ import annotations

import pytest

from slotkeeper.slots.protocol import Candidate
from slotkeeper_cli.commands import holder
from tests.cli.operator_account import Operator, StubbedCalls
from tests.support.module_time import replace_time


def test_release_frees_the_slot_of_a_dead_holder(operator: Operator) -> None:
    name = operator.hold("a", attempt=2)
    operator.stop_long_ago(name)

    ended = operator.run("holder", "release", "a", "--json")

    assert (ended.exit_code, ended.json["released"], ended.json["request_id"]) == (0, name, "a")
    assert ended.json["checked"] == [
        "its execution is ABORTED",
        "no live Glue run of it (check 1 of 2, Glue job sample-job)",
        "no live Glue run of it (check 2 of 2, Glue job sample-job)",
    ]
    assert (operator.process().slots_in_use, dict(operator.process().holders)) == (0, {})


def test_release_is_refused_while_a_glue_run_is_alive(operator: Operator) -> None:
    name = operator.hold("a")
    run = operator.run_glue(name)
    operator.stop_long_ago(name)

    ended = operator.run("holder", "release", name)

    assert ended.exit_code == 3
    assert f"Glue run {run} of job sample-job has not ended. The janitor releases the slot by about" in ended.stderr
    assert operator.process().slots_in_use == 1


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

    assert operator.run("holder", "release", name).exit_code == 3
    assert gaps == [30]
    assert operator.process().slots_in_use == 1


def test_release_is_refused_within_the_grace_time(operator: Operator) -> None:
    """A run that was started the moment before does not show yet."""
    name = operator.hold("a")
    operator.stop(name)

    ended = operator.run("holder", "release", name)

    assert ended.exit_code == 3
    assert "its execution is ABORTED, but a Glue run that it started last may not show yet; wait" in ended.stderr
    assert "The janitor releases the slot by about" in ended.stderr
    assert "alive" not in ended.stderr
    assert operator.process().slots_in_use == 1


def test_release_is_refused_for_a_day_if_a_confirmed_holder_has_no_execution(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DescribeExecution is eventually consistent, and a run that Glue has refused so far does not show."""
    name = operator.hold("a", started=False)
    replace_time(monkeypatch, holder, time=lambda: 1_790_000_300.0)

    ended = operator.run("holder", "release", name)
    assert ended.exit_code == 3
    assert "The janitor decides a day after the slot was reserved, at 20" in ended.stderr
    replace_time(monkeypatch, holder, time=lambda: 1_790_000_000.0 + 2 * 86_400)
    assert operator.run("holder", "release", name).exit_code == 0


def test_release_of_a_holder_whose_job_was_deleted(operator: Operator) -> None:
    name = operator.hold("a")
    operator.stop_long_ago(name)
    operator.glue.delete_job(JobName="sample-job")

    assert operator.run("holder", "release", name).exit_code == 0


def test_release_is_refused_for_a_young_reservation(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    name = operator.hold("a", started=False, confirmed=False)
    replace_time(monkeypatch, holder, time=lambda: 1_790_000_100.0)

    ended = operator.run("holder", "release", name)

    assert ended.exit_code == 3
    assert "wait 20 s" in ended.stderr


def test_release_fails_if_the_holder_changes_between_the_checks(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = operator.hold("a")
    operator.stop_long_ago(name)

    def again(_: float) -> None:
        operator.release(name)
        operator.slots.reserve(Candidate("sample", name), 1_790_000_500.0)

    replace_time(monkeypatch, holder, sleep=again)

    ended = operator.run("holder", "release", name)

    assert ended.exit_code == 1
    assert operator.process().slots_in_use == 1


def test_release_while_the_execution_runs_needs_force_and_is_audited(operator: Operator) -> None:
    name = operator.hold("a")

    ended = operator.run("holder", "release", name)
    assert ended.exit_code == 3
    assert f"a ({name}) may still use its slot: its execution is RUNNING." in ended.stderr
    assert "run slotkeeper request cancel --stop a." in ended.stderr
    assert operator.run("holder", "release", name, "--force").exit_code == 3, "not confirmed"
    assert (operator.process().slots_in_use, operator.audited()) == (1, [])
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

    ended = operator.run("holder", "release", "a")

    assert (ended.exit_code, f"the name of one execution, {', '.join(names)}" in ended.stderr) == (3, True)


def test_release_does_not_find_an_unknown_holder(operator: Operator) -> None:
    assert operator.run("holder", "release", "sample-0123").exit_code == 4


def test_a_holder_whose_work_may_not_be_read_is_released_with_force_only(operator: Operator) -> None:
    name = operator.hold("a")
    operator.stop_long_ago(name)
    denied = {"Error": {"Code": "AccessDeniedException", "Message": "no"}}

    with StubbedCalls("glue", {"GetJobRuns": lambda _: denied}):
        ended = operator.run("holder", "release", name)
    assert ended.exit_code == 3
    assert "you may not read whether its Glue run of Glue job sample-job has ended" in ended.stderr
    assert operator.process().slots_in_use == 1

    with StubbedCalls("glue", {"GetJobRuns": lambda _: denied}):
        assert operator.run("holder", "release", name, "--force", "--yes").exit_code == 0
    assert operator.process().slots_in_use == 0
