"""The operator command lists any dead-letter message, and redrives it or refuses with a reason."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from slotkeeper.slots.process import Process
from slotkeeper.slots.request import Delivery, Request, execution_name, parse_request
from slotkeeper_cli.dead_letters import DeadLetterMessage, DeadLetterQueueName
from slotkeeper_cli.redrive import NotRedrivable, plan
from tests.unit.fuzz.strategies import bodies, sqs_texts

REQUEST = {"process": "p", "arguments": {"--month": "1"}, "request_id": "order-1", "attempt": 2}
WORK = {"request_id": "order-1", "payload": {"a": 1}, "retries": ["2026-11-21T09:30:00.000Z"]}
HALF = '{"process": "p", "request_id": "\\ud800"}'  # half of a surrogate pair: valid JSON, but not a text
PROCESS = Process("p", slot_limit=1, slots_in_use=0, holders={}, paused=False, target="job")

attributes = st.dictionaries(
    st.sampled_from(["code", "reason", "source_message_id", "ERROR_CODE"]),
    sqs_texts,
)


@given(queue=st.sampled_from(DeadLetterQueueName), body=bodies(REQUEST) | bodies(WORK), sent_attributes=attributes)
@example(queue=DeadLetterQueueName.REQUEST, body=HALF, sent_attributes={}).via(
    "its execution name could not be computed, and no message was listed"
)
@example(queue=DeadLetterQueueName.REQUEST, body='{"process": "p", "attempt": true}', sent_attributes={})
def test_any_dead_letter_message_is_listed_and_redriven_under_its_key_or_refused(
    queue: DeadLetterQueueName, body: str, sent_attributes: dict[str, str]
) -> None:
    message = DeadLetterMessage(queue, "message-1", "handle", body, 1_800_000_000.0, sent_attributes)
    json.dumps(message.summary(), ensure_ascii=False).encode()
    try:
        planned = plan(message, {"p": PROCESS})
    except NotRedrivable:
        return
    if not isinstance(planned, Request):
        assert planned.request_id == message.request_id
        return
    again = parse_request(Delivery("another", planned.to_json(), "any group", "1", 1_800_000_000.0))
    assert (again.request_id, again.attempt) == (message.request_id, message.attempt)
    assert again.execution_name == execution_name("p", message.request_id, message.attempt)
