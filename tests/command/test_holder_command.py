"""`slotkeeper holder release`: only the slot of a dead holder is released, and every check is reported."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper_cli.commands import holder
from tests.command.account_contents import edit
from tests.command.operator_account import Operator, StubbedCalls
from tests.module_time import replace_time


def _dead(operator: Operator) -> str:
    name = operator.hold("a")
    operator.stop_long_ago(name)
    return name


def _with_a_run(operator: Operator) -> str:
    name = operator.hold("a")
    operator.run_glue(name)
    operator.stop_long_ago(name)
    return name


def _stopped_just_now(operator: Operator) -> str:
    """A run that was started the moment before does not show yet."""
    name = operator.hold("a")
    operator.stop(name)
    return name


def _reserved(operator: Operator) -> str:
    """A dispatch starts it again by name, however old it is."""
    return operator.hold("a", started=False, confirmed=False)


def _without_execution(operator: Operator) -> str:
    """DescribeExecution is eventually consistent, and a run that Glue has refused so far does not show."""
    return operator.hold("a", started=False)


def _lease(seconds: int) -> Callable[[Operator], str]:
    return lambda operator: operator.lease("lease-1", int(time.time()) + seconds)


def _heavy(operator: Operator) -> str:
    operator.processes.set_limit("sample", 6)
    return operator.hold("a", weight=5)


# The holder of the slot; why it may be in use; what to do instead.
REFUSED = {
    "its execution runs": (
        lambda operator: operator.hold("a"),
        ("a ({name}) may still use its slot: its execution is RUNNING.", "slotkeeper explain {name}."),
    ),
    "its Glue run runs": (
        _with_a_run,
        ("its Glue run jr_1 has not ended.",),
    ),
    "its execution has just ended": (
        _stopped_just_now,
        ("its execution is ABORTED, but a Glue run that it started last may not show yet; wait",),
    ),
    "its slot is reserved": (_reserved, ("its starter, or the next dispatch, starts its workflow",)),
    "it has no execution": (_without_execution, ("the janitor decides after a day, at 20",)),
    "its lease has not ended": (
        _lease(900),
        ("lease lease-1 may still use its slot: it ends in 14 min", "slotkeeper explain lease-1"),
    ),
    "its lease may not have ended by another clock": (_lease(-CLOCK_SKEW_SECONDS // 2), ("it expired",)),
    "it is heavy": (_heavy, ("With --force its slot, weight 5, is released now",)),
}


@pytest.mark.parametrize(("made", "reasons"), REFUSED.values(), ids=REFUSED)
def test_the_slot_of_a_holder_that_may_use_it_is_released_with_force_only(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, made: Callable[[Operator], str], reasons: tuple[str, ...]
) -> None:
    name = made(operator)
    now = 1_790_000_300.0 if made is _without_execution else time.time()
    replace_time(monkeypatch, holder, time=lambda: now)  # however slow the machine is, a lease does not end meanwhile

    refused = operator.refuses("holder", "release", name)
    assert [reason for reason in reasons if reason.format(name=name) not in refused] == []
    assert "although it may still use it" in operator.asks("holder", "release", name, "--force")
    ended = operator.run("holder", "release", name, "--force", "--yes")

    assert (ended.exit_code, dict(operator.process().holders), operator.process().slots_in_use) == (0, {}, 0)
    (line,) = operator.audited()
    assert (line["action"], line["execution"], line["forced"], line["alive"] != "") == (
        "holder release",
        name,
        True,
        True,
    )


def _two_days_old(operator: Operator) -> str:
    return operator.hold("a", started=False)


def _without_its_job(operator: Operator) -> str:
    name = _dead(operator)
    del operator.aws.jobs["sample-job"]
    return name


@pytest.mark.parametrize("made", [_dead, _two_days_old, _without_its_job, _lease(-60)])
def test_a_dead_holder_is_released_and_it_rings(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, made: Callable[[Operator], str]
) -> None:
    name = made(operator)
    grants = operator.process().grants
    if made is _two_days_old:
        replace_time(monkeypatch, holder, time=lambda: 1_790_000_000.0 + 2 * 86_400, sleep=lambda _: None)

    ended = operator.run("holder", "release", name, "--json")

    assert (ended.exit_code, ended.json["released"], ended.json["forced"]) == (0, name, False)
    assert (operator.process().slots_in_use, dict(operator.process().holders)) == (0, {})
    # A dispatch may have read the queue before the end of the request was recorded.
    assert operator.process().grants == grants + 1
    assert operator.rings() == [{"process": "sample"}]
    assert operator.audited()[-1]["alive"] == ""


def test_both_checks_of_the_work_are_reported(operator: Operator) -> None:
    _dead(operator)
    ended = operator.run("holder", "release", "a", "--json").json
    assert (ended["request_id"], ended["checked"]) == (
        "a",
        [
            "its execution is ABORTED",
            "no live Glue run of it (check 1 of 2, Glue job sample-job)",
            "no live Glue run of it (check 2 of 2, Glue job sample-job)",
        ],
    )


def test_it_is_refused_if_a_run_shows_at_the_second_check(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A StartJobRun was under way when the workflow was stopped."""
    name, gaps = _dead(operator), list[float]()

    def begin(gap: float) -> None:
        gaps.append(gap)
        operator.run_glue(name)

    replace_time(monkeypatch, holder, sleep=begin)
    operator.refuses("holder", "release", name)
    assert gaps == [30]


@pytest.mark.parametrize(("made", "changed"), [(_dead, "since"), (_lease(-60), "until")])
def test_a_holder_that_changes_after_the_checks_is_kept(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, made: Callable[[Operator], str], changed: str
) -> None:
    """As by a redrive, or by code that extends its lease."""
    name = made(operator)

    def change(*_: object, **__: object) -> None:
        edit(operator, f"holders/{name}/{changed}", {"N": "1799999999"})

    monkeypatch.setattr(holder, "audit", change)

    ended = operator.run("holder", "release", name)
    assert (ended.exit_code, operator.process().slots_in_use) == (1, 1)
    assert "changed meanwhile, so its slot was not released: run this again" in ended.stderr


def test_a_request_that_holds_two_slots_needs_the_execution(operator: Operator) -> None:
    operator.processes.create("other", 1, "sample-job")
    names = [operator.hold("a", process) for process in ("other", "sample")]

    assert f"the name of one execution, {', '.join(names)}" in operator.refuses("holder", "release", "a")


def test_a_holder_whose_work_may_not_be_read_is_released_with_force_only(operator: Operator) -> None:
    name = _dead(operator)
    error = {"Error": {"Code": "AccessDeniedException", "Message": "no"}}
    with StubbedCalls("glue", {"GetJobRuns": lambda _: error}):
        reason = operator.refuses("holder", "release", name)
        assert "you may not read whether its Glue run of Glue job sample-job has ended" in reason
        assert operator.run("holder", "release", name, "--force", "--yes").exit_code == 0
