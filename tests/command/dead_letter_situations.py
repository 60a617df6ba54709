"""Answers of `slotkeeper dlq`, also with unread messages."""

from __future__ import annotations

import json
from functools import partial

from slotkeeper_cli.dead_letters import HIDDEN_SECONDS
from tests.command.account_contents import move_by_sqs, send_dead_letter
from tests.command.operator_account import Operator
from tests.command.situations import Situation

_REQUESTS = [f"r{number:02}" for number in range(14)]


def _body(request_id: str, process: str = "sample") -> str:
    return json.dumps({"process": process, "request_id": request_id})


def _moved(operator: Operator, *first: str) -> None:
    """14 requests that SQS itself moved, behind messages with these bodies."""
    for body in [*first, *map(_body, _REQUESTS)]:
        move_by_sqs(operator, body)


def _read_by_another(operator: Operator, most: int = 10) -> None:
    for request_id in ("a", "b", "c"):
        send_dead_letter(operator, _body(request_id), request_id)
    url = operator.outputs["RequestDeadLetterQueueUrl"]
    operator.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=most, VisibilityTimeout=HIDDEN_SECONDS)


def _malformed(operator: Operator) -> None:
    bodies = ["not JSON", "[]", '{"process": 5, "request_id": 6, "attempt": "x"}', "[" * 9999]
    for number in range(20):
        send_dead_letter(operator, bodies[number % 4], f"m-{number}", number)


_BEHIND = "they are behind the first ten of their message group (redrive or discard those first)"
_ELSEWHERE = "could not be read: another command is reading them (run this again, at the latest after 10 min)"

SITUATIONS = {
    "14 requests that SQS moved, in one message group": Situation(
        _moved,
        "dlq list request",
        says=("RequestDeadLetterQueue (request): 14  (10 none)", "r00 (sample, attempt 1)", _BEHIND),
        shows={"queues.0.messages": 14, "queues.0.unread.messages": 4},
    ),
    "14 requests that SQS moved, behind a malformed one: the run reads on behind the one that it leaves": Situation(
        lambda operator: _moved(operator, "not JSON"),
        "dlq redrive request --all --yes",
        says=("sent again: r00", "sent again: r13", "left: ", "14 messages sent again, 1 left."),
        never=("could not be read",),
        exit_code=1,
    ),
    "another command is reading all messages": Situation(
        _read_by_another,
        "dlq list request",
        says=("RequestDeadLetterQueue (request): 3", f"About 3 messages of RequestDeadLetterQueue {_ELSEWHERE}"),
        shows={"queues.0.unread.messages": 3},
    ),
    "another command is reading all messages: nothing sent is no success": Situation(
        _read_by_another,
        "dlq redrive request --all --yes",
        says=(_ELSEWHERE, "0 messages sent again, 0 left.", "nothing was sent again: no such message could be read"),
        exit_code=1,
    ),
    "another command is reading one message": Situation(
        partial(_read_by_another, most=1),
        "dlq show request --id a",
        says=("It may be one that could not be read", "About 1 message", _ELSEWHERE),
        exit_code=4,
    ),
    "another command is reading one message: the others are sent": Situation(
        partial(_read_by_another, most=1),
        "dlq redrive request --all --yes",
        says=("sent again: b (sample", "About 1 message of RequestDeadLetterQueue", "2 messages sent again, 0 left."),
    ),
    "the queue is empty: nothing to send": Situation(
        lambda _: None,
        "dlq redrive request --all",
        says=("RequestDeadLetterQueue: 0 messages sent again, 0 left.",),
        shows={"done": [], "unread": None},
    ),
    "no message has the code": Situation(
        _malformed,
        "dlq redrive request --code TooLarge --yes",
        says=("0 messages sent again, 0 left.", "RequestDeadLetterQueue has no such message any more."),
        exit_code=4,
    ),
    "20 malformed messages: counted and listed": Situation(
        _malformed,
        "dlq list request --limit 15",
        says=(
            "RequestDeadLetterQueue (request): 20  (20 InvalidRequest)",
            "m-0 (attempt 1)  InvalidRequest: because of InvalidRequest",
            "5 more not shown: above --limit 15",
        ),
        never=("could not be read",),
        shows={"queues.0.codes.InvalidRequest": 20, "queues.0.dead_letters.14.process": ""},
    ),
    "20 malformed messages: each is left with the reason": Situation(
        _malformed,
        "dlq redrive request --all --yes",
        says=("left: m-0 (attempt 1), m-4", ": body is not JSON", "0 messages sent again, 20 left."),
        exit_code=3,
    ),
    "20 malformed messages: deleted by their code": Situation(
        _malformed,
        "dlq discard request --code InvalidRequest --yes",
        says=("deleted: m-0 (attempt 1)", "RequestDeadLetterQueue: 20 messages deleted, 0 left."),
        never=("could not be read",),
    ),
}
