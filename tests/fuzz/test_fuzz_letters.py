"""The operator command: whatever stands in a dead-letter queue is shown, and redriven or left with a reason."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from slotkeeper.retry.message import parse_message
from slotkeeper.slots.request import Delivery, execution_name, parse_request
from slotkeeper_cli.dead_letter_queues import DeadLetterMessage, DeadLetterQueueName
from slotkeeper_cli.redrive import NotRedrivable, plan
from slotkeeper_cli.request_sender import InvalidRequests, read_lines
from tests.fuzz.strategies import bodies, sqs_texts

REQUEST = {"process": "p", "arguments": {"--month": "1"}, "request_id": "order-1", "attempt": 2}
WORK = {"request_id": "order-1", "payload": {"a": 1}, "retries": ["2026-11-21T09:30:00.000Z"]}
HALF = '{"process": "p", "request_id": "\\ud800"}'  # of a surrogate pair: JSON, and no text

attributes = st.dictionaries(
    st.sampled_from(["code", "reason", "error", "cause", "source_message_id", "execution_name", "ERROR_CODE"]),
    sqs_texts,
)


@given(queue=st.sampled_from(DeadLetterQueueName), body=bodies(REQUEST) | bodies(WORK), told=attributes)
@example(queue=DeadLetterQueueName.REQUEST, body=HALF, told={}).via(
    "a name could not be made of it, and no letter was listed"
)
@example(queue=DeadLetterQueueName.REQUEST, body='{"process": "p", "attempt": true}', told={})
@example(queue=DeadLetterQueueName.FAILED, body='{"process": "p"}', told={}).via(
    "started by hand, and sent with an id of no letters"
)
def test_a_letter_is_shown_and_redriven_under_its_key_or_left_with_a_reason(
    queue: DeadLetterQueueName, body: str, told: dict[str, str]
) -> None:
    letter = DeadLetterMessage(queue, "message-1", "handle", body, "p", 1_800_000_000.0, told)
    json.dumps(letter.summary(), ensure_ascii=False).encode()
    try:
        redrive = plan(letter, {"p"})
    except NotRedrivable:
        return
    if redrive.request is None:
        assert parse_message(redrive.body).request_id == letter.request_id
        assert redrive.body == body
        return
    # What the starter will make of it.
    delivery = Delivery("another", redrive.body, redrive.request.process, "handle", "1", 1, 1_800_000_000.0)
    again = parse_request(delivery)
    assert (again.request_id, again.attempt) == (letter.request_id, letter.attempt + 1)
    assert again.execution_name == execution_name("p", letter.request_id, letter.attempt + 1)


@given(lines=st.lists(bodies(REQUEST).filter(lambda text: "\n" not in text), max_size=4))
@example(lines=[HALF])
def test_lines_are_requests_that_the_starter_takes_or_all_are_refused(lines: list[str]) -> None:
    try:
        requests = read_lines(lines)
    except InvalidRequests:
        return
    for line in requests:
        request = line.request
        delivery = Delivery("another", request.to_json(), request.process, "handle", "1", 1, 1_800_000_000.0)
        assert parse_request(delivery) == request
