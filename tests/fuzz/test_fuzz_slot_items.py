"""Starter, janitor and deployments with any item of the slot table. F7 is a malformed item that occurred."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from slotkeeper.slots.process import MalformedProcess, find_faults, read_process
from slotkeeper.slots.request import PRIORITIES, execution_name, process_of_execution
from tests.fuzz.strategies import items
from tests.fuzz.test_fuzz_requests import PROCESS, check_each_has_one_end, check_no_mistake_in_the_code, kept
from tests.support.cold_functions import Functions
from tests.support.in_process_tables import SLOTS
from tests.support.profiles import share
from tests.unit.work_account import record

HOLDER = {"M": {"state": {"S": "RESERVED"}, "since": {"N": "1700000000"}}}
HEAVY = {"M": HOLDER["M"] | {"weight": {"N": "2"}}}
RUNS = {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1700000000"}, "job": {"S": "job"}}}
WAITING = {
    "receipt_handle": {"S": "handle-of-waiting"},
    "hidden_until": {"N": "1800000225"},
    "sequence": {"S": "0" * 40},
    "receives": {"N": "1"},
    "weight": {"N": "1"},
    "since": {"N": "1700000000"},
    "execution": {"S": "p-3"},
    "request_id": {"S": "order-3"},
}
TOMBSTONE = {name: WAITING[name] for name in ("sequence", "receives", "since", "execution", "request_id")}
LOST = {"request_id": {"S": "order-5"}, "priority": {"S": "low"}, "since": {"N": "1"}, "noted": {"N": "1700000000"}}


def waiting(**changes: Any) -> dict[str, Any]:
    """Registrations, one with changes, and the tombstone of a waker."""
    return {"M": {"high": {"M": TOMBSTONE}, "normal": {"M": WAITING | changes}, "low": {"M": WAITING}}}


VALID = PROCESS | {
    "slot_limit": {"N": "4"},
    "slots_in_use": {"N": "3"},
    "holders": {"M": {"p-1": HEAVY, "p-2": RUNS}},
    "waiting": waiting(),
    "paused": {"BOOL": False},
    "lost": {"M": {"p-5": {"M": LOST}}},
    "cancelled": {"M": {"p-4": {"M": {"since": {"N": "1700000000"}, "by": {"S": "anna"}}}}},
}


def cancelled(since: str) -> dict[str, Any]:
    """The attribute by which the request of these tests is cancelled."""
    return {"cancelled": {"M": {execution_name("p", "order-1", 1): {"M": {"since": {"N": since}}}}}}


def others() -> st.SearchStrategy[dict[str, Any]]:
    return items(VALID).map(lambda item: item | {"process_name": {"S": "p"}})


def understood(item: dict[str, Any]) -> bool:
    try:
        read_process(item)
    except MalformedProcess:
        return False
    return True


@given(item=others())
@example(item=VALID)
@example(item=VALID | {"holders": {"M": {"p-1": {"S": "no map"}}}, "waiting": {"L": []}})
def test_an_item_has_faults_exactly_if_it_cannot_be_read(item: dict[str, Any]) -> None:
    faults = find_faults(item)

    assert understood(item) == (not faults)
    assert len({fault.keys for fault in faults}) == len(faults)


def _record(receives: int, age: float) -> dict[str, Any]:
    attributes = {
        "ApproximateReceiveCount": str(receives),
        "SentTimestamp": str(int((time.time() - age) * 1000)),
        "MessageGroupId": "p",
        "SequenceNumber": "18849496460467696128",
    }
    return record({"process": "p", "request_id": "order-1"}) | {"attributes": attributes}


@given(before=others(), receives=st.sampled_from([1, 979, 980]), age=st.sampled_from([0, 10**6, 1_208_000]))
@example(before=VALID | {"slot_limit": {"S": "3"}}, receives=980, age=0).via("F7: a limit that is a string")
@example(before=VALID | {"holders": {"L": []}}, receives=980, age=0).via(
    "a list has a size, but no holder can be added"
)
@example(before=VALID | cancelled("1"), receives=1, age=0).via("a cancelled request")
@example(before=VALID | cancelled("9" * 20), receives=980, age=0).via("cancelled at an impossible time")
@example(before=VALID | {"slot_limit": {"N": "0"}, "waiting": waiting(sequence={"N": "1"})}, receives=980, age=0)
def test_f7_a_message_for_any_item_has_one_end_before_sqs_deletes_it(
    functions: Functions, before: dict[str, Any], receives: int, age: float
) -> None:
    account = functions.new_account()
    before = account.tables.put(SLOTS, before)
    sent = [_record(receives, age)]
    ran = functions.run(functions.load("starter"), {"Records": sent})
    check_each_has_one_end(account, sent, ran)
    check_no_mistake_in_the_code(ran, before)
    if receives >= 980 or age > 1_206_000:
        assert not kept(ran), "SQS would delete or dead-letter it without a reason"
    _check_only_its_own_holder_changed(before, account.tables.item(SLOTS, "p"), execution_name("p", "order-1", 1))


def _check_only_its_own_holder_changed(before: dict[str, Any], after: dict[str, Any], me: str) -> None:
    for item in (before, after):
        for name in ("slots_in_use", "waiting", "lost", *(f"turn_{priority}" for priority in PRIORITIES)):
            item.pop(name, None)
    if "M" in after.get("holders", {}):
        after["holders"]["M"].pop(me, None)
    assert after == before


HEALTHY = PROCESS | {
    "process_name": {"S": "healthy"},
    "slots_in_use": {"N": "1"},
    "holders": {"M": {"healthy-1": HOLDER}},
    "waiting": waiting(receipt_handle={"S": "handle-healthy"}),
}


@share(0.5)
@given(
    before=others(),
    status=st.sampled_from(["RUNNING", "SUCCEEDED", "FAILED", "ABORTED", "TIMED_OUT", "PENDING_REDRIVE"]),
)
@example(before=VALID | {"waiting": waiting(receipt_handle={"N": "1"})}, status="RUNNING").via(
    "a wake that failed with KeyError in every janitor run"
)
def test_the_janitor_handles_other_processes_next_to_any_item(
    functions: Functions, before: dict[str, Any], status: str
) -> None:
    account = functions.new_account()
    before = account.tables.put(SLOTS, before)
    account.tables.put(SLOTS, HEALTHY)
    account.execution("p-2", status)
    ran = functions.run(functions.load("janitor"), {})
    assert ran.raised is None, ran
    check_no_mistake_in_the_code(ran, before)
    assert account.tables.item(SLOTS, "healthy")["holders"] == {"M": {}}
    assert "handle-healthy" in account.made_visible
    if not understood(before):
        assert ran.answer["MalformedProcesses"] == 1
        assert account.tables.item(SLOTS, "p") == before


names = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs"]), min_size=1, max_size=80).filter(
    lambda name: not re.search(r"[\s<>{}\[\]?*\"#%\\^|~`$&,;:/]", name)
)
DEEP = "[" * 60_000 + "]" * 60_000
inputs = st.sampled_from(['{"process": "p"}', DEEP, '"\ufffe\uffff"', "", "not JSON \x00", "1" * 5000])


@share(0.5)
@given(
    before=others(),
    name=names | st.sampled_from(["p-1", "p-2", "-p", "p", "p-"]),
    status=st.sampled_from(["FAILED", "ABORTED", "TIMED_OUT", "RUNNING"]),
    input=inputs,
    failure=st.fixed_dictionaries({}, optional={"error": st.text(max_size=256), "cause": st.text(max_size=300)}),
    by=st.sampled_from(["event", "run"]),
)
@example(before=VALID, name="p-1", status="ABORTED", input=DEEP, failure={}, by="run").via(
    "too deep for Python's parser"
)
@example(before=VALID, name="p-1", status="ABORTED", input='"\ufffe"', failure={}, by="run").via("SQS refuses it")
@example(before=VALID, name="-p", status="ABORTED", input="{}", failure={}, by="event").via("an empty key")
@example(before=VALID | {"slot_limit": {"S": "3"}}, name="p-9", status="ABORTED", input="{}", failure={}, by="run")
@example(before=VALID | {"slot_limit": {"S": "3"}}, name="p-9", status="ABORTED", input="{}", failure={}, by="event")
@example(before=VALID | {"target": {"S": ""}}, name="p-2", status="ABORTED", input="{}", failure={}, by="event")
def test_the_request_of_any_unsuccessful_execution_is_kept_when_its_item_can_be_read(
    functions: Functions,
    *,
    before: dict[str, Any],
    name: str,
    status: str,
    input: str,
    failure: dict[str, str],
    by: str,
) -> None:
    account = functions.new_account()
    before = account.tables.put(SLOTS, before)
    account.execution(name, status, input, **failure)
    account.age_executions(3600)
    function = "execution_closed" if by == "event" else "janitor"
    body = json.dumps({"detail": {"name": name, "status": status}})
    event = {"Records": [record(body) | {"receiptHandle": "handle-event"}]}

    def handle() -> list[dict[str, Any]]:
        ran = functions.run(functions.load(function), event if by == "event" else {})
        assert ran.raised is None, ran
        check_no_mistake_in_the_code(ran, before, name, input, failure)
        return account.sent_to("failed")

    kept_requests = handle()
    if process_of_execution(name) == "p" and not understood(before):
        assert kept_requests == []
        account.tables.put(SLOTS, VALID)
        kept_requests = handle()
    accounted_for = status == "FAILED" and failure.get("error") in ("RequestFailed", "RequestReturned")
    assert len(kept_requests) == (status != "RUNNING" and not accounted_for)
    for request in kept_requests:
        assert {"execution_name", "error", "cause", "kept_by"} == request["MessageAttributes"].keys()
