"""`slotkeeper request show` and `cancel`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotkeeper.slots.admission import DeadLettered
from slotkeeper.slots.executions import Execution
from slotkeeper.slots.processes import MAX_CANCELLATIONS
from slotkeeper.slots.request import PRIORITIES, Delivery, execution_name, parse_request
from slotkeeper_cli.commands import cancel_request
from slotkeeper_cli.request_ids import MAX_DESCRIBED, RequestIds
from tests.cli.account_contents import NOW, edit, fail, only_id, receive, send_dead_letter, starter, wait_first, waiting
from tests.cli.operator_account import Operator

pytestmark = pytest.mark.usefixtures("a_minute_later")


def _show(operator: Operator, request_id: str = "a", *options: str) -> Any:
    (shown,) = operator.run("request", "show", request_id, *options, "--json").json["found"]
    return shown


def _attempt(operator: Operator, request_id: str = "a", *options: str) -> Any:
    (attempt,) = _show(operator, request_id, *options)["attempts"]
    return attempt


def _ended(operator: Operator) -> None:
    """Let a request run and be aborted."""
    name = operator.hold("a")
    operator.release(name)
    operator.stop(name)


# Showing -----------------------------------------------------------------------------------------------------------


def test_show_finds_attempts_after_a_dead_lettered_one(operator: Operator) -> None:
    send_dead_letter(operator)
    body = json.dumps({"process": "sample", "request_id": "a", "attempt": 2})
    operator.workflow.start(parse_request(Delivery("m", body, "sample", "", "0", 1, NOW)))
    shown = _show(operator)
    assert [(one["attempt"], one["state"]) for one in shown["attempts"]] == [(1, "dead-lettered"), (2, "finishing")]
    assert shown["attempts"][0]["dead_letter"]["reason"] == "because of Expired"


def test_show_finds_a_request_by_execution_and_by_message_id(operator: Operator) -> None:
    name = operator.hold("a")
    assert _show(operator, name)["request_id"] == "a"
    send_dead_letter(operator, '{"process": "sample"}', message_id="m-9")
    assert _attempt(operator, "m-9")["state"] == "dead-lettered"
    of_message = only_id(operator, "RequestDeadLetterQueue")
    assert _show(operator, of_message)["request_id"] == "m-9"
    assert _attempt(operator, execution_name("sample", "m-9", 1))["dead_letter"]["request_id"] == "m-9"
    assert operator.run("request", "show", "sample-" + "0" * 32).exit_code == 4


def test_show_finds_a_waiting_request_of_any_priority_by_execution(operator: Operator) -> None:
    operator.hold("a")
    for priority in PRIORITIES:
        name = operator.wait(f"the {priority} one", "sample", priority)
        assert _show(operator, name)["request_id"] == f"the {priority} one"
        ended = operator.run("request", "cancel", name, "--yes", "--json")
        assert (ended.json["request_id"], ended.json["was_first"]) == (f"the {priority} one", True)


# Cancelling --------------------------------------------------------------------------------------------------------


def test_cancel_lets_the_starter_dead_letter_a_queued_request(operator: Operator) -> None:
    operator.send("a")
    ended = operator.run("request", "cancel", "a", "--process", "sample", "--yes", "--json")
    assert ended.exit_code == 0
    assert (ended.json["cancelled"], ended.json["attempt"]) == (execution_name("sample", "a", 1), 1)
    assert _attempt(operator)["state"] == "cancelled"
    outcome = starter(operator).admit(receive(operator), NOW)
    assert isinstance(outcome, DeadLettered)
    assert outcome.reason.startswith("cancelled by ")
    attempt = _attempt(operator)
    assert (attempt["state"], attempt["dead_letter"]["code"]) == ("dead-lettered", "Cancelled")
    (line,) = operator.audited()
    assert (line["action"], line["execution"]) == ("request cancel", execution_name("sample", "a", 1))


def test_the_first_waiting_request_is_woken_immediately(operator: Operator) -> None:
    wait_first(operator)
    assert waiting(operator, "RequestQueue") == []
    ended = operator.run("request", "cancel", "a", "--process", "sample", "--yes", "--json")
    assert ended.json["was_first"] is True
    assert len(waiting(operator, "RequestQueue")) == 1


def test_cancel_stops_a_running_request_only_with_stop(operator: Operator) -> None:
    name = operator.hold("a")
    assert "Give --stop" in operator.refuses("request", "cancel", "a", "--process", "sample", "--yes")
    assert operator.workflow.describe(name).status == "RUNNING"  # type: ignore[union-attr]
    operator.asks("request", "cancel", "a", "--process", "sample", "--stop")
    ended = operator.run("request", "cancel", "a", "--stop", "--yes", "--json")
    assert (ended.json["stopped"], ended.json["request_id"]) == (name, "a")
    stopped = operator.workflow.describe(name)
    assert stopped is not None
    assert stopped.status == "ABORTED"
    assert operator.process().cancelled == {}
    (line,) = operator.audited()
    assert (line["action"], line["stop"], line["request_id"]) == ("request cancel", True, "a")


def test_cancel_is_refused_while_a_request_is_starting(operator: Operator) -> None:
    operator.hold("a", confirmed=False)
    assert "is being started" in operator.refuses("request", "cancel", "a", "--process", "sample", "--stop", "--yes")


def test_cancel_is_refused_if_the_request_reserves_a_slot_meanwhile(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.send("a")
    monkeypatch.setattr(cancel_request, "audit", lambda *_, **__: starter(operator).admit(receive(operator), NOW))
    ended = operator.run("request", "cancel", "a", "--process", "sample", "--yes")
    assert ended.exit_code == 3
    assert "has reserved a slot meanwhile" in ended.stderr
    assert operator.process().cancelled == {}


def test_cancel_is_undone_if_the_request_has_run_meanwhile(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a late redelivery of a request that has run would be dead-lettered as Cancelled."""
    monkeypatch.setattr(cancel_request, "audit", lambda *_, **__: _ended(operator))
    ended = operator.run("request", "cancel", "a", "--process", "sample", "--yes")
    assert ended.exit_code == 3
    assert "has run meanwhile (ABORTED)" in ended.stderr
    assert operator.process().cancelled == {}


@pytest.mark.parametrize("where", ["dead letter", "failed", "finishing"])
def test_cancel_is_refused_if_the_request_is_not_queued(operator: Operator, where: str) -> None:
    if where == "dead letter":
        send_dead_letter(operator)
    else:
        name = operator.hold("a")
        operator.release(name)
        if where == "failed":
            operator.stop(name)
            fail(operator)
    operator.refuses("request", "cancel", "a", "--process", "sample", "--yes")


@pytest.mark.parametrize(
    ("options", "attempt"), [((), 2), (("--attempt", "2"), 2), (("--attempt", "5"), 5)], ids=["", "2", "5"]
)
def test_cancel_selects_the_attempt_after_the_last_that_ran(
    operator: Operator, options: tuple[str, ...], attempt: int
) -> None:
    _ended(operator)
    operator.run("request", "cancel", "a", "--process", "sample", *options, "--yes")
    assert set(operator.process().cancelled) == {execution_name("sample", "a", attempt)}


def test_cancel_is_refused_for_a_failed_attempt(operator: Operator) -> None:
    _ended(operator)
    operator.refuses("request", "cancel", "a", "--process", "sample", "--attempt", "1", "--yes")


def test_cancel_is_refused_above_the_maximum_of_cancellations(operator: Operator) -> None:
    edit(operator, "cancelled", {"M": {f"x-{n}": {"M": {"since": {"N": "1"}}} for n in range(MAX_CANCELLATIONS)}})
    ended = operator.run("request", "cancel", "a", "--process", "sample", "--yes")
    assert ended.exit_code == 3
    assert "100 cancelled requests" in ended.stderr


def test_cancel_finds_the_process_of_a_request_or_asks_for_it(operator: Operator) -> None:
    assert operator.run("request", "cancel", "a", "--process", "unknown", "--yes").exit_code == 4
    assert operator.run("request", "cancel", "queued", "--yes", "--json").json["process"] == "sample", "the only one"
    operator.processes.create("other", 1, "sample-job")
    name = operator.hold("a")
    assert operator.run("request", "cancel", name, "--process", "other", "--yes").exit_code == 4
    assert "Give --stop" in operator.run("request", "cancel", "a", "--yes").stderr, "found in one process"
    assert "with --process: one of other, sample. Nothing" in operator.refuses("request", "cancel", "new", "--yes")
    operator.hold("a", "other")
    reason = operator.refuses("request", "cancel", "a", "--stop", "--yes")
    assert "several processes have a request a: other, sample." in reason


class DescribedWorkflow:
    """A workflow that knows each execution whose name is not "unknown", and notes which ones were described."""

    def __init__(self) -> None:
        self.described: list[str] = []

    def describe(self, name: str) -> Execution | None:
        self.described.append(name)
        given = "[]" if name == "manual" else f'{{"request_id": "id of {name}"}}'
        return None if name == "unknown" else Execution(name, "RUNNING", None, given)


def test_an_execution_is_described_once() -> None:
    workflow: Any = DescribedWorkflow()
    ids = RequestIds(workflow)
    for _ in range(2):
        assert ids.find(["p-1", "manual", "unknown"]) == {"p-1": "id of p-1"}
    assert sorted(workflow.described) == ["manual", "p-1", "unknown", "unknown"], "the last may start later"


def test_a_search_describes_a_bounded_number_of_executions_and_the_next_one_the_rest() -> None:
    workflow: Any = DescribedWorkflow()
    ids, names = RequestIds(workflow), [f"p-{number}" for number in range(MAX_DESCRIBED + 1)]
    assert len(ids.find(names)) == len(workflow.described) == MAX_DESCRIBED
    assert len(ids.find(names)) == len(workflow.described) == MAX_DESCRIBED + 1
