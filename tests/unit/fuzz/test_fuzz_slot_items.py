"""Starter, janitor and deployments with any item of the slot table. F7 is a malformed item that occurred."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from slotkeeper.slots.executions import SLOT_LOST
from slotkeeper.slots.process import MalformedProcess, find_faults, read_process
from slotkeeper.slots.request import execution_name, process_of_execution
from tests.profiles import share
from tests.simulation.account.cold_functions import Functions
from tests.simulation.account.items import REQUESTS, SLOTS
from tests.unit.fuzz.strategies import items
from tests.unit.fuzz.test_fuzz_requests import PROCESS, check_each_has_one_end, check_no_mistake_in_the_code, kept
from tests.unit.work_messages import record

HOLDER = {"M": {"state": {"S": "RESERVED"}, "since": {"N": "1700000000"}}}
HEAVY = {"M": HOLDER["M"] | {"weight": {"N": "2"}, "key": {"S": "acme"}}}
RUNS = {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1700000000"}, "job": {"S": "job"}}}
VALID = PROCESS | {
    "slot_limit": {"N": "4"},
    "slots_in_use": {"N": "3"},
    "holders": {"M": {"p-1": HEAVY, "p-2": RUNS}},
    "paused": {"BOOL": False},
    "ring_at": {"N": "1700000000.5"},
    "key_limit": {"N": "3"},
    "key_limits": {"M": {"acme": {"N": "2"}}},
    "after_keys": {"M": {"1": {"S": "acme"}}},
}
ROW = {
    "process_name": {"S": "p"},
    "execution": {"S": "p-3"},
    "state": {"S": "QUEUED"},
    "request_id": {"S": "order-3"},
    "attempt": {"N": "1"},
    "message_id": {"S": "m"},
    "digest": {"S": "d"},
    "body": {"S": "{}"},
    "priority": {"S": "normal"},
    "sent": {"N": "1700000000"},
    "place": {"S": "1#01700000000000#" + "1" * 40},
    "placed": {"S": "1#01700000000000#" + "1" * 40},
    "open": {"N": "1700000000"},
    "weight": {"N": "1"},
    "task_token": {"S": "token"},
    "start_before": {"N": "1700000000"},
    "deadline": {"N": "1700000000"},
}


OTHERS = items(VALID).map(lambda item: item | {"process_name": {"S": "p"}})


def other_rows() -> st.SearchStrategy[dict[str, Any]]:
    """Any row. An index has no attribute of another type than its key's (DynamoDB guide, "Local secondary indexes")."""
    keys = {name: ROW[name] for name in ("process_name", "execution", "attempt")}
    typed = {"place": "S", "deadline": "N", "open": "N"}

    def possible(row: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in (row | keys).items() if name not in typed or typed[name] in value}

    return items(ROW).map(possible)


def understood(item: dict[str, Any]) -> bool:
    try:
        read_process(item)
    except MalformedProcess:
        return False
    return True


@given(item=OTHERS)
@example(item=VALID)
@example(item=VALID | {"holders": {"M": {"p-1": {"S": "no map"}}}})
def test_an_item_has_faults_exactly_if_it_cannot_be_read(item: dict[str, Any]) -> None:
    faults = find_faults(item)

    assert understood(item) == (not faults)
    assert len({fault.keys for fault in faults}) == len(faults)


@given(before=OTHERS, row=other_rows())
@example(before=VALID | {"slot_limit": {"S": "3"}}, row=ROW).via("F7: a limit that is a string")
@example(before=VALID | {"holders": {"L": []}}, row=ROW).via("a list has a size, but no holder can be added")
def test_f7_a_message_for_any_item_next_to_any_row_is_queued(
    functions: Functions, before: dict[str, Any], row: dict[str, Any]
) -> None:
    account = functions.new_account()
    before = account.tables.put(SLOTS, before)
    account.tables.put(REQUESTS, row)
    sent = [record({"process": "p", "request_id": "order-1"}) | {"eventSourceARN": "arn:aws:sqs:us-east-1:1:requests"}]
    ran = functions.run(functions.load("starter"), {"Records": sent})
    check_each_has_one_end(account, sent, ran)
    assert kept(ran) == []
    me = {execution_name("p", "order-1", 1), "p-3"}
    _check_only_these_holders_changed(before, account.tables.item(SLOTS, "p"), me)


def _check_only_these_holders_changed(before: dict[str, Any], after: dict[str, Any], names: set[str]) -> None:
    for item in (before, after):
        for name in ("slots_in_use", "grants", "next_start", "ring_at", "after_keys"):
            item.pop(name, None)
        for name in names:
            item.get("holders", {}).get("M", {}).pop(name, None)
    held, left = (item.pop("holders", {}).get("M", {}) for item in (before, after))
    # A reservation is old, and has no row: it is dropped.
    assert {name: held.get(name) for name in left} == left
    assert after == before


HEALTHY = PROCESS | {
    "process_name": {"S": "healthy"},
    "slots_in_use": {"N": "1"},
    "holders": {"M": {"healthy-1": HOLDER}},
}
HEALTHY_ROW = ROW | {"process_name": {"S": "healthy"}, "execution": {"S": "healthy-2"}, "weight": {"N": "2"}}
HEALTHY_ROW = {name: value for name, value in HEALTHY_ROW.items() if name not in ("start_before", "deadline")}


@share(0.5)
@given(
    before=OTHERS,
    row=other_rows(),
    status=st.sampled_from(["RUNNING", "SUCCEEDED", "FAILED", "ABORTED", "TIMED_OUT", "PENDING_REDRIVE"]),
)
def test_the_janitor_handles_other_processes_next_to_any_item_and_any_row(
    functions: Functions, before: dict[str, Any], row: dict[str, Any], status: str
) -> None:
    account = functions.new_account()
    before = account.tables.put(SLOTS, before)
    account.tables.put(REQUESTS, row)
    account.tables.put(SLOTS, HEALTHY)
    account.tables.put(REQUESTS, HEALTHY_ROW)
    account.execution("p-2", status)
    ran = functions.run(functions.load("janitor"), {})
    assert ran.raised is None, ran
    # The old reservation has no row, so its slot is free for the request that needs both.
    assert account.tables.item(SLOTS, "healthy")["holders"]["M"].keys() == {"healthy-2"}
    assert account.tables.item(REQUESTS, "healthy\nhealthy-2")["state"]["S"] == "STARTED"
    if not understood(before):
        assert ran.answer["MalformedProcesses"] >= 1
        assert account.tables.item(SLOTS, "p") == before


STARTED = {name: value for name, value in HEALTHY_ROW.items() if name not in ("place", "weight")}
STARTED |= {"state": {"S": "STARTED"}, "started": {"N": "1700000000"}}
names = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs"]), min_size=1, max_size=80).filter(
    lambda name: not re.search(r"[\s<>{}\[\]?*\"#%\\^|~`$&,;:/]", name)
)
DEEP = "[" * 60_000 + "]" * 60_000
inputs = st.sampled_from(['{"process": "p"}', DEEP, '"\ufffe\uffff"', "", "not JSON \x00", "1" * 5000])


@share(0.5)
@given(
    before=OTHERS,
    name=names | st.sampled_from(["p-1", "p-2", "-p", "p", "p-"]),
    status=st.sampled_from(["FAILED", "ABORTED", "TIMED_OUT", "RUNNING"]),
    input=inputs,
    failure=st.fixed_dictionaries({}, optional={"error": st.text(max_size=256), "cause": st.text(max_size=300)}),
    by=st.sampled_from(["ending", "janitor"]),
)
@example(before=VALID, name="p-1", status="ABORTED", input=DEEP, failure={}, by="janitor").via(
    "too deep for Python's parser"
)
@example(before=VALID, name="p-1", status="ABORTED", input='"\ufffe"', failure={}, by="janitor").via("SQS refuses it")
@example(before=VALID, name="-p", status="ABORTED", input="{}", failure={}, by="ending").via("an empty key")
@example(before=VALID | {"slot_limit": {"S": "3"}}, name="p-9", status="ABORTED", input="{}", failure={}, by="janitor")
@example(before=VALID | {"slot_limit": {"S": "3"}}, name="p-9", status="ABORTED", input="{}", failure={}, by="ending")
@example(before=VALID | {"target": {"S": ""}}, name="p-2", status="ABORTED", input="{}", failure={}, by="ending")
def test_the_request_of_any_unsuccessful_execution_is_settled_when_its_item_can_be_read(
    functions: Functions,
    *,
    before: dict[str, Any],
    name: str,
    status: str,
    input: str,
    failure: dict[str, str],
    by: str,
) -> None:
    account, process = functions.new_account(), process_of_execution(name)
    before = account.tables.put(SLOTS, before)
    if process:
        account.tables.put(REQUESTS, STARTED | {"process_name": {"S": process}, "execution": {"S": name}})
    account.execution(name, status, input=input, **failure)
    account.age_executions(3600)
    body = json.dumps({"detail": {"name": name, "status": status}})
    event = {"Records": [record(body) | {"receiptHandle": "handle-event"}]} if by == "ending" else {}

    def handled() -> tuple[str, bool]:
        """The row's state, and whether its end must still be published."""
        ran = functions.run(functions.load(by), event)
        assert ran.raised is None, ran
        check_no_mistake_in_the_code(ran, before, name, input, failure)
        row = account.tables.item(REQUESTS, f"{process}\n{name}")
        return row.get("state", {"S": ""})["S"], "task_token" in row

    end = handled()
    if process != "p":
        return
    if not understood(before):
        assert end == ("STARTED", True)
        account.tables.put(SLOTS, VALID)
        end = handled()
    expected = "RETURNED" if status == "FAILED" and failure.get("error") == SLOT_LOST else "FAILED"
    seen = before if understood(before) else VALID
    is_held = seen.get("holders", {}).get("M", {}).get(name, {}).get("M", {}).get("state") == {"S": "RUNNING"}
    # The work of a holder is checked twice before.
    assert end == (expected, False) or (end == ("STARTED", True) and (status == "RUNNING" or is_held))
