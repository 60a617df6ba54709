"""What `slotkeeper dlq` answers, and what it could not read."""

from __future__ import annotations

import json

from slotkeeper.slots.queues import FailedRequestQueue
from slotkeeper.slots.request import execution_name
from slotkeeper.slots.returns import Requeued
from slotkeeper_cli.dead_letters import HIDDEN_SECONDS
from tests.cli.account_contents import fail, move_by_sqs, send_dead_letter
from tests.cli.operator_account import NOW, Operator
from tests.cli.situations import Names, Situation

_REQUESTS = [f"r{number:02}" for number in range(14)]


def _body(request_id: str, process: str = "sample") -> str:
    return json.dumps({"process": process, "request_id": request_id})


def _failed(operator: Operator) -> None:
    """Three requests have failed, one of them with a deadline that has passed, and one was cancelled meanwhile."""
    for request_id in ("a", "b"):
        fail(operator, request_id)
    fail(operator, "late", start_before="2026-09-21T14:14:00Z")


def _redriven_by_row(operator: Operator) -> Names:
    """A failed request whose row is redriven, by a command that died before it deleted the message."""
    made = operator.requeues.redrive("sample", fail(operator), NOW + 40)
    assert isinstance(made, Requeued)
    return {"again": made.execution}


def _without_row(operator: Operator) -> None:
    """A request of an execution that was started manually, or of a table that was restored."""
    queue = FailedRequestQueue(operator.sqs, operator.outputs["FailedRequestQueueUrl"])
    queue.keep(_body("a"), execution_name("sample", "a", 1), "Glue.Failed", "it failed")


def _moved(operator: Operator, *first: str) -> None:
    """14 requests that SQS itself moved, behind messages with these bodies."""
    for body in [*first, *map(_body, _REQUESTS)]:
        move_by_sqs(operator, body)


def _read_by_another(operator: Operator) -> None:
    for request_id in ("a", "b", "c"):
        fail(operator, request_id)
    operator.sqs.receive_message(
        QueueUrl=operator.outputs["FailedRequestQueueUrl"], MaxNumberOfMessages=10, VisibilityTimeout=HIDDEN_SECONDS
    )


def _one_read_by_another(operator: Operator) -> None:
    fail(operator, "a")
    operator.sqs.receive_message(QueueUrl=operator.outputs["FailedRequestQueueUrl"], VisibilityTimeout=HIDDEN_SECONDS)
    fail(operator, "b")


def _malformed(operator: Operator) -> None:
    bodies = ["not JSON", "[]", '{"process": 5, "request_id": 6, "attempt": "x"}', "[" * 9999]
    for number in range(20):
        send_dead_letter(operator, bodies[number % 4], f"m-{number}", number)


_BEHIND = (
    "About 4 messages of RequestDeadLetterQueue could not be read: SQS returns the first ten of message group sample "
    "only (redrive or discard those first), or another command is reading them"
)
_ELSEWHERE = "could not be read: another command is reading them (run this again, at the latest after 10 min)"

SITUATIONS = {
    "three failed requests, one of them too late: the dry run": Situation(
        _failed,
        "dlq redrive failed --all --dry-run",
        says=(
            "would be sent: a, attempt 2  execution sample-",
            "would be sent: b, attempt 2",
            "left: late  Glue.Failed: its start_before, 2026-09-21T14:14:00Z, has passed: give a later one with --",
            "FailedRequestQueue: 2 messages would be sent again, 1 left, 0 failed.",
        ),
        never=("could not be read",),
        shows={"unread": None, "dry_run": True, "redriven.1.request_id": "b", "skipped.0.process": "sample"},
    ),
    "three failed requests, one of them too late: the run does what the dry run named": Situation(
        _failed,
        "dlq redrive failed --all --yes",
        says=("sent: a, attempt 2", "sent: b, attempt 2", "2 messages sent again, 1 left, 0 failed."),
    ),
    "a failed request with a later deadline": Situation(
        _failed,
        "dlq redrive failed --id late --start-before 2099-11-28T08:00:00Z --yes",
        says=("sent: late, attempt 2",),
    ),
    "a failed request was queued again before, and its message is left": Situation(
        _redriven_by_row,
        "dlq redrive failed --all --yes",
        says=("sent: a, attempt 2  execution {again}", "1 message sent again, 0 left, 0 failed."),
    ),
    "a failed request has no row": Situation(
        _without_row,
        "dlq redrive failed --all --yes",
        says=("left: a  Glue.Failed: it has no row in RequestTable: submit its body as a new request",),
        exit_code=3,
    ),
    "14 requests that SQS moved, in one message group": Situation(
        _moved,
        "dlq list request",
        says=("RequestDeadLetterQueue (request): 14  (10 none)", "r00 (sample, attempt 1)", _BEHIND),
        shows={"queues.0.messages": 14, "queues.0.unread.messages": 4},
    ),
    "14 requests that SQS moved, in one message group: shown in full": Situation(
        _moved, "dlq show request --limit 20", says=("r09 (sample, attempt 1)", _BEHIND), shows={"unread.messages": 4}
    ),
    "14 requests that SQS moved, behind a malformed one: the run reads on behind the one that it leaves": Situation(
        lambda operator: _moved(operator, "not JSON"),
        "dlq redrive request --all --yes",
        says=("sent: r00", "sent: r13", "left: ", "14 messages sent again, 1 left, 0 failed."),
        never=("could not be read",),
    ),
    "another command is reading all messages": Situation(
        _read_by_another,
        "dlq list failed",
        says=("FailedRequestQueue (failed): 3", f"About 3 messages of FailedRequestQueue {_ELSEWHERE}"),
        shows={"queues.0.unread.messages": 3},
    ),
    "another command is reading all messages: nothing sent is no success": Situation(
        _read_by_another,
        "dlq redrive failed --all --yes",
        says=(
            _ELSEWHERE,
            "0 messages sent again, 0 left, 0 failed.",
            "nothing was sent, since no message could be read that was to be sent",
        ),
        exit_code=1,
    ),
    "another command is reading all messages: nothing deleted is no success": Situation(
        _read_by_another,
        "dlq discard failed --code Glue.Failed --yes",
        says=("0 messages deleted.", _ELSEWHERE, "nothing was deleted, since no message could be read"),
        exit_code=1,
    ),
    "another command is reading one message": Situation(
        _one_read_by_another,
        "dlq show failed --id a",
        says=("It has: b (sample, attempt 1)", "It may be one that could not be read", "About 1 message", _ELSEWHERE),
        exit_code=4,
    ),
    "another command is reading one message: the other one is sent": Situation(
        _one_read_by_another,
        "dlq redrive failed --all --yes",
        says=("sent: b, attempt 2", "About 1 message of FailedRequestQueue", "1 message sent again, 0 left, 0 failed."),
    ),
    "the queue is empty: nothing to send": Situation(
        lambda _: None,
        "dlq redrive request --all",
        says=("RequestDeadLetterQueue has no message to send again.",),
        shows={"redriven": [], "unread": None},
    ),
    "no message has the code": Situation(
        _malformed,
        "dlq redrive request --code TooLarge --yes",
        says=("RequestDeadLetterQueue has no message to send again.", "there is no message of code TooLarge"),
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
        says=("left: m-0  InvalidRequest: it is not a valid request: body is not JSON", "20 left, 0 failed."),
        exit_code=3,
    ),
    "20 malformed messages: deleted by their code": Situation(
        _malformed,
        "dlq discard request --code InvalidRequest --yes",
        says=("RequestDeadLetterQueue: 20 messages deleted.",),
        never=("could not be read",),
    ),
}
