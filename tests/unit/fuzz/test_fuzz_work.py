"""The worker deletes no message before the request is stored elsewhere, with any message, ledger row and policy."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from slotkeeper.retry.message import InvalidMessage, parse_message
from tests.profiles import share
from tests.simulation.account.account import AwsAccount
from tests.simulation.account.cold_functions import Functions, Ran, invocation
from tests.simulation.account.items import LEDGER
from tests.unit.fuzz.strategies import bodies, item_texts, items, near_misses, texts, values
from tests.unit.fuzz.test_fuzz_requests import kept
from tests.unit.work_messages import record

NOW = 1_800_000_000.0
CANARY = "canary-of-the-payload"
PAYLOAD = {"fails": "not now", "note": CANARY}
VALID = {"request_id": "r", "payload": PAYLOAD, "retries": ["2027-01-15T07:59:00.000Z"], "uncounted": 1}

# Message attributes; the worker reads only "not_before".
message_attributes = st.dictionaries(
    st.just("not_before") | st.sampled_from(["idempotency_key", "code", "x"]),
    st.builds(
        lambda kind, text: {"dataType": kind, "stringValue": text},
        st.sampled_from(["Number", "String", "Number.custom"]),
        st.sampled_from(["0", "-1", "nan", "inf", "1e400", "1800000100", "1800000000000", "1_0", "soon"]) | item_texts,
    )
    | st.just({"dataType": "Binary", "binaryValue": "AA=="}),
    max_size=3,
)


BODIES = bodies(VALID)


@st.composite
def records(draw: st.DrawFn, body: st.SearchStrategy[str] = BODIES) -> dict[str, Any]:
    """A message as the event source mapping passes it."""
    message = record(draw(body), f"message-{draw(st.integers(1, 10**6))}")
    message["attributes"]["ApproximateReceiveCount"] = str(draw(st.sampled_from([1, 2, 10**9])))
    return message | {"messageAttributes": draw(message_attributes)}


def run(functions: Functions, sent: list[dict[str, Any]]) -> Ran:
    module = functions.load("worker")
    module._worker._consumer.clock = lambda: NOW
    return functions.run(module, {"Records": sent}, invocation(seconds=120))


def check_nothing_is_lost(
    account: AwsAccount, sent: list[dict[str, Any]], ran: Ran, status_before: str = "SUCCEEDED"
) -> None:
    """`status_before`: the request's status in the ledger before the run."""
    stays = kept(ran)
    assert set(stays) <= {message["messageId"] for message in sent}
    assert len(set(stays)) == len(stays)
    for dead in account.sent_to("work-dead"):
        assert {"code", "reason"} <= dead["MessageAttributes"].keys() or len(dead["MessageBody"]) > 900_000
    for message in sent:
        if message["messageId"] not in stays:
            _check_it_is_stored_elsewhere(account, message["body"], status_before)


def _check_it_is_stored_elsewhere(account: AwsAccount, body: str, status_before: str) -> None:
    bodies = [dead["MessageBody"] for dead in account.sent_to("work-dead")]
    wanted = _request_id(body)
    if wanted is None:
        assert body in bodies
        return
    bodies += [sent["MessageBody"] for sent in account.sent_to("work")]
    bodies += [sent["Target"]["Input"] for sent in account.schedules.values()]
    if wanted not in map(_request_id, bodies):
        row = account.tables.item(LEDGER, wanted)
        later = float(row["attempts"]["N"]) > parse_message(body).attempt  # another message has the next attempt
        assert later or row["status"]["S"] in ("SUCCEEDED", status_before)


def _request_id(body: str) -> str | None:
    try:
        return parse_message(body).request_id
    except InvalidMessage:
        return None


policies = (
    st.just("{}")
    | st.sampled_from(["", "[" * 100_000, "null", '{"default": {"base_seconds": 1e308}}'])
    | st.builds(json.dumps, near_misses({"default": {"base_seconds": 1, "max_attempts": 2}, "errors": {}}) | values)
)


@given(
    sent=st.lists(records(), min_size=1, max_size=4, unique_by=lambda record: record["messageId"]),
    policy=policies,
)
def test_every_message_is_done_scheduled_dead_lettered_or_left_on_the_queue(
    functions: Functions, sent: list[dict[str, Any]], policy: str
) -> None:
    account = functions.new_account()
    account.parameters["/policy"] = policy
    ran = run(functions, sent)
    check_nothing_is_lost(account, sent, ran)
    assert CANARY not in ran.logged
    assert "InvalidPolicy" not in ran.logged, "an invalid policy is reported, not raised"


REFUSED = {
    "UpdateItem": ["ThrottlingException", "ValidationException", "ConditionalCheckFailedException"],
    "SendMessage": ["ThrottlingException", "InvalidMessageContents"],
    "ChangeMessageVisibility": ["AccessDenied", "ReceiptHandleIsInvalid"],
    "GetSchedule": ["AccessDeniedException", "ThrottlingException"],
    "CreateSchedule": ["ConflictException", "ValidationException", "ServiceQuotaExceededException"],
    "GetParameter": ["ParameterNotFound", "ThrottlingException"],
}


@share(0.5)
@given(sent=records(st.just(json.dumps(VALID))), data=st.data(), policy=policies)
def test_no_message_is_lost_if_aws_refuses_calls(
    functions: Functions, sent: dict[str, Any], data: st.DataObject, policy: str
) -> None:
    account = functions.new_account()
    account.parameters["/policy"] = policy
    for operation in data.draw(st.lists(st.sampled_from(sorted(REFUSED)), max_size=3)):
        account.refuse[operation] = data.draw(st.sampled_from(REFUSED[operation]))
    check_nothing_is_lost(account, [sent], run(functions, [sent]))


BODY = json.dumps(VALID)
PLAN = {"when": NOW + 60, "counted": True}
ROW = {
    "request_id": {"S": "r"},
    "status": {"S": "FAILED"},
    "attempts": {"N": "2"},
    "claim": {"S": "another"},
    "lease_until": {"N": str(int(NOW) - 10)},
    "first_attempt_at": {"S": "2027-01-15T07:59:00.000Z"},
    "last_attempt_at": {"S": "2027-01-15T07:59:30.000Z"},
    "last_error": {"S": "failed"},
    "history": {
        "L": [{"M": {"attempt": {"N": "2"}, "at": {"S": "2027-01-15T07:59:30.000Z"}, "error": {"S": "failed"}}}]
    },
    "plan": {"S": json.dumps(PLAN)},
    "payload_hash": {"S": parse_message(BODY).payload_hash},
    "expires_at": {"N": "1900000000"},
}
_statuses = st.sampled_from(["RUNNING", "FAILED", "WAITING", "SUCCEEDED", "DEAD_LETTERED"])
_plans = st.builds(
    json.dumps, near_misses(PLAN) | near_misses({"code": "Poison", "reason": "because"}) | values
) | st.sampled_from(["", "[" * 100_000, '{"when": NaN, "counted": true}', '{"when": 1e300, "counted": true}'])
_moments = st.sampled_from(["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59.999999Z", "2026-W01", "now"]) | texts
rows = st.builds(
    lambda row, changes: {**row, **changes, "request_id": {"S": "r"}},
    items(ROW),
    st.fixed_dictionaries(
        {},
        optional={
            "status": st.builds(lambda text: {"S": text}, _statuses),
            "plan": st.builds(lambda text: {"S": text}, _plans),
            "last_attempt_at": st.builds(lambda text: {"S": text}, _moments),
            "attempts": st.integers(0, 3).map(lambda number: {"N": str(number)}),
        },
    ),
)


@share(0.5)
@given(row=rows)
@example(row=ROW | {"plan": {"S": '{"when": "tomorrow", "counted": true}'}})
@example(row=ROW | {"history": {"L": []}}).via("a failure without a history")
def test_no_message_is_lost_with_any_ledger_row(functions: Functions, row: dict[str, Any]) -> None:
    account = functions.new_account()
    account.tables.put(LEDGER, row)
    sent = record(BODY)
    ran = run(functions, [sent])
    check_nothing_is_lost(account, [sent], ran, row.get("status", {}).get("S", ""))
    if kept(ran):
        assert "Left the message on the queue" in ran.logged
