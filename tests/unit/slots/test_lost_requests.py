"""Requests whose message is gone are noted once, reported by the janitor, and never while the message exists."""

from __future__ import annotations

import time
from typing import Any

import pytest

from slotkeeper.slots import run_report
from slotkeeper.slots.lost_requests import MAX_LOST, LostVerdict, judge_lost, send_again
from slotkeeper.slots.process import RETENTION_SECONDS, SETTLED_SECONDS, Lost
from slotkeeper.slots.protocol import Granted, Registration
from slotkeeper.slots.request import Priority, execution_name
from tests.support.boundary import Calls
from tests.unit.conftest import CONTEXT, FULL, HIDDEN_UNTIL, NOW, Account, Load

FIRST = "1".zfill(40)
BACK = HIDDEN_UNTIL + SETTLED_SECONDS
NOTED = Lost("order-1", "normal", int(NOW), int(NOW))
REPORTED = Lost("order-1", "normal", int(NOW), int(NOW), reported=int(NOW) + SETTLED_SECONDS)


def _cleared(account: Account, execution: str = "p-gone", **changes: Any) -> None:
    """A waker finds the receipt handle of a waiting request outdated."""
    account.fill()
    account.register(execution, **changes)
    account.slots.clear("p", account.item().waiting["normal"], NOW)
    (name,) = account.item().cleared.values()
    assert (name.execution, name.since, name.cleared) == (execution, int(NOW), int(NOW))


def _purged(account: Account, execution: str = "p-gone", priority: Priority = "normal") -> None:
    """The message of a waiting request is deleted while its process admits none, so that no wake comes for it."""
    account.fill()
    account.processes.pause("p")
    sent = account.wait_in_queue(execution, priority)
    account.sqs.delete_message(QueueUrl=account.queue_url, ReceiptHandle=sent.receipt_handle)


# A later message of the group


@pytest.mark.parametrize("is_cleared", [True, False])
def test_a_later_message_that_asks_for_a_slot_shows_that_an_earlier_one_is_gone(
    account: Account, is_cleared: bool
) -> None:
    account.fill()
    account.register("p-gone", request_id="order-1")
    if is_cleared:
        account.slots.clear("p", account.item().waiting["normal"], NOW)
    assert account.reserve("p-later", sequence="2") == FULL
    assert account.register("p-later", sequence="2") == Registration.REGISTERED
    assert account.item().lost == {"p-gone": NOTED}
    assert account.item().waiting["normal"].execution == "p-later"


def test_a_later_message_that_is_granted_a_slot_shows_that_an_earlier_one_is_gone(account: Account) -> None:
    _cleared(account)
    account.slots.cancel("p", "p-other")
    assert account.reserve("p-later", sequence="2") == Granted()
    assert account.item().lost.keys() == {"p-gone"}
    assert account.item().tombstones == {"normal": ("2".zfill(40), 1)}


def test_a_registration_of_a_later_message_replaces_no_name(account: Account) -> None:
    """Its reserve, which moves the name, comes again."""
    account.fill()
    account.register("p-gone")
    assert account.register("p-later", sequence="2") == Registration.RESERVE_AGAIN
    assert account.item().waiting["normal"].execution == "p-gone"


def test_the_oldest_note_gives_way_to_the_newest(account: Account) -> None:
    account.fill()
    for number in range(MAX_LOST + 2):
        account.register(f"p-{number}", sequence=str(number + 1))
        seen = account.item()
        assert account.slots.lost.lose(seen, seen.waiting["normal"], NOW + number) is True
    assert account.item().lost.keys() == {f"p-{number}" for number in range(2, MAX_LOST + 2)}


def test_a_name_that_has_changed_is_not_moved(account: Account) -> None:
    account.fill()
    account.register("p-back")
    seen = account.item()
    account.register("p-back", receives=2)
    assert account.slots.lost.lose(seen, seen.waiting["normal"], NOW) is False
    assert account.item().lost == {}


# An empty queue


@pytest.mark.parametrize("is_cleared", [False, True], ids=["purged", "cleared by a waker"])
def test_the_janitor_notes_a_request_some_minutes_after_its_message_should_have_returned(
    account: Account, is_cleared: bool
) -> None:
    (_cleared if is_cleared else _purged)(account)
    due = int(NOW) + SETTLED_SECONDS if is_cleared else BACK
    account.run_at(due - 1)
    assert account.item().lost == {}
    account.run_at(due)
    assert account.item().lost == {"p-gone": Lost("", "normal", int(NOW), due)}
    assert (account.item().waiting, account.item().cleared) == ({}, {})


def test_the_janitor_asks_sqs_only_if_a_message_is_overdue(account: Account) -> None:
    account.fill()
    account.processes.pause("p")
    account.wait_in_queue()
    calls = Calls(account.sqs)
    account.run_at(BACK - 1)
    assert calls.made == []
    account.run_at(BACK)
    assert calls.made == ["GetQueueAttributes"]


# The report


@pytest.mark.parametrize(
    ("noted", "has_run", "age", "verdict"),
    [
        (NOTED, False, SETTLED_SECONDS - 1, LostVerdict.KEEP),
        (NOTED, False, SETTLED_SECONDS, LostVerdict.REPORT),
        (NOTED, True, 0, LostVerdict.DROP),
        (REPORTED, False, RETENTION_SECONDS - 1, LostVerdict.KEEP),
        (REPORTED, False, RETENTION_SECONDS, LostVerdict.DROP),
        (REPORTED, True, RETENTION_SECONDS - 1, LostVerdict.DROP),
    ],
)
def test_a_note_is_judged_by_its_age_and_its_execution(
    noted: Lost, has_run: bool, age: int, verdict: LostVerdict
) -> None:
    assert judge_lost(noted, has_run, NOW + age) is verdict


def _lost(account: Account, execution: str = "p-gone") -> None:
    _cleared(account, execution)
    account.reserve("p-later", sequence="2")


def test_a_lost_request_is_reported_once(account: Account) -> None:
    _lost(account)
    assert account.run_at(NOW + SETTLED_SECONDS - 1).counts["RequestsLost"] == 0
    counts = [account.run_at(NOW + SETTLED_SECONDS + seconds).counts["RequestsLost"] for seconds in (0, 60)]
    assert counts == [1, 0]
    assert account.item().lost["p-gone"].reported == NOW + SETTLED_SECONDS


def test_a_request_that_has_an_execution_is_not_reported(account: Account) -> None:
    """Its message was received again after it had run, and was then deleted."""
    name = execution_name("p", "order-1", 1)
    _lost(account, name)
    account.stepfunctions.start_execution(stateMachineArn=account.workflow_arn, name=name, input="{}")
    assert account.run_at(NOW + SETTLED_SECONDS).counts["RequestsLost"] == 0
    assert account.item().lost == {}


@pytest.mark.parametrize("back", ["waits", "holds a slot", "is cancelled"])
def test_a_request_that_is_known_again_is_not_reported(account: Account, back: str) -> None:
    _lost(account)
    if back == "waits":
        account.register("p-gone", sequence="3")
    elif back == "is cancelled":
        account.processes.cancellations.add("p", "p-gone", NOW)
    else:
        account.slots.adopt("p", "p-gone", NOW + SETTLED_SECONDS, "job")
    assert account.run_at(NOW + SETTLED_SECONDS).counts["RequestsLost"] == 0
    assert account.item().lost == {}


def test_the_report_names_the_request_and_the_command_that_sends_it_again(
    account: Account, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[tuple[str, dict[str, Any]]] = []
    # Not the logger of observability, which `load` reloads.
    monkeypatch.setattr(run_report.logger, "warning", lambda message, extra: logged.append((message, extra)))
    name = execution_name("p", "order 1", 1)
    noted = {"N": str(int(time.time() - SETTLED_SECONDS))}
    note = {"request_id": {"S": "order 1"}, "priority": {"S": "high"}, "since": {"N": "1"}, "noted": noted}
    account.write("lost", {"M": {name: {"M": note}}})
    assert load("janitor").handler({}, CONTEXT)["RequestsLost"] == 1
    (line,) = (extra for message, extra in logged if "no longer has the message" in message)
    assert (line["process_name"], line["request_id"], line["execution"]) == ("p", "order 1", name)
    assert line["send_again"] == "slotkeeper request submit --process p --request-id 'order 1' --priority high"


def test_a_later_attempt_is_sent_again_as_the_same_attempt() -> None:
    command = send_again("p", execution_name("p", "order-1", 2), NOTED)
    request = '{"process": "p", "request_id": "order-1", "priority": "normal", "attempt": 2}'
    assert command == f"printf %s '{request}' | slotkeeper request submit --file -"


def test_a_request_whose_caller_waits_has_no_command() -> None:
    assert send_again("p", execution_name("p", "order-1", 1, "caller"), NOTED) == ""
