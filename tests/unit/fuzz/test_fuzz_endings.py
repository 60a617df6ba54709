"""Any message of EndingQueue is published, or comes again, and no task token is logged."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from tests.simulation.account.cold_functions import Functions
from tests.simulation.account.items import REQUESTS
from tests.unit.fuzz.strategies import bodies
from tests.unit.fuzz.test_fuzz_requests import check_no_mistake_in_the_code, kept
from tests.unit.fuzz.test_fuzz_slot_items import ROW
from tests.unit.work_messages import record

TOKEN = "secret-of-the-caller"
WITHOUT_START = {name: value for name, value in ROW.items() if name not in ("place", "deadline")}
WITHOUT_START |= {"state": {"S": "CANCELLED"}, "code": {"S": "Cancelled"}, "reason": {"S": "why"}, "ended": {"N": "1"}}
UNPUBLISHED = WITHOUT_START | {"open": {"N": "-1700000000"}, "task_token": {"S": TOKEN}}
REFUSED = {"message_id": "m9", "group_id": "g", "code": "InvalidRequest", "reason": "why", "task_token": TOKEN}
STATUS_EVENT = {"detail": {"name": "p-3", "status": "SUCCEEDED", "redriveCount": 0}}
NAMED, ALL = {"process": "p", "executions": ["p-3"]}, {"process": "p"}
CALLS = ["SendTaskFailure", "PutEvents", "GetItem", "UpdateItem", "Query", ""]


@given(
    body=bodies(STATUS_EVENT) | bodies(NAMED) | bodies({"refused": REFUSED}) | bodies(REFUSED),
    refused=st.sampled_from(CALLS),
)
@example(body=json.dumps(STATUS_EVENT), refused="")
@example(body=json.dumps(NAMED), refused="")
@example(body=json.dumps(ALL), refused="Query")
@example(body=json.dumps({"refused": REFUSED}), refused="SendTaskFailure")
@example(body=json.dumps({"refused": REFUSED}), refused="PutEvents")
def test_any_message_loses_no_end_and_logs_no_token(functions: Functions, body: str, refused: str) -> None:
    account = functions.new_account()
    account.tables.put(REQUESTS, UNPUBLISHED)
    account.refuse |= {refused: "ThrottlingException"} if refused else {}
    ran = functions.run(functions.load("ending"), {"Records": [record(body)]})
    row, is_repeated = account.tables.item(REQUESTS, "p\np-3"), kept(ran) == ["m1"]
    check_no_mistake_in_the_code(ran, body)
    assert TOKEN not in ran.logged
    answers, sent = ([each["taskToken"] for each in account.answers], account.bus.published)
    is_marked = "open" not in row
    assert is_marked or row["task_token"] == {"S": TOKEN}
    # An end that is marked was published, and one that a known message names is published or comes again.
    assert not is_marked or (answers == [TOKEN] and len(sent) == 1 and "task_token" not in row)
    if body in (json.dumps(STATUS_EVENT), json.dumps(NAMED), json.dumps(ALL)):
        assert is_marked != is_repeated
    if body == json.dumps({"refused": REFUSED}):
        assert is_repeated != (answers == [TOKEN] and len(sent) == 1)
