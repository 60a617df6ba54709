"""What `slotkeeper dlq` answers, and what it could not read."""

from __future__ import annotations

import json

from slotkeeper_cli.dead_letters import HIDDEN_SECONDS
from tests.cli.account_contents import fail, move_by_sqs, send_dead_letter
from tests.cli.operator_account import Operator
from tests.cli.situations import Situation

_REQUESTS = [f"r{number:02}" for number in range(14)]


def _body(request_id: str, process: str = "sample") -> str:
    return json.dumps({"process": process, "request_id": request_id})


def _refused(operator: Operator) -> None:
    """One malformed request and 14 valid ones, which the starter dead-lettered in another order than they were sent."""
    send_dead_letter(operator, "not JSON", "InvalidRequest", "m-bad")
    for request_id in reversed(_REQUESTS):
        sequence = str(9_000_000_000 + 100 * int(request_id[1:]))
        send_dead_letter(operator, _body(request_id), "UnknownProcess", f"m-{request_id}", sequence=sequence)


def _process_removed(operator: Operator) -> None:
    """15 requests of a process that was removed while they were queued."""
    for number in range(15):
        send_dead_letter(operator, _body(f"r{number}", "gone"), "UnknownProcess", f"m-{number}", "gone")


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
        send_dead_letter(operator, bodies[number % 4], "InvalidRequest", f"m-{number}", "sample#high")


_BEHIND = (
    "About 4 messages of RequestDeadLetterQueue could not be read: SQS returns the first ten of message group sample "
    "only (redrive or discard those first), or another command is reading them"
)
_ELSEWHERE = "could not be read: another command is reading them (run this again, at the latest after 10 min)"

SITUATIONS = {
    "15 requests of one process, one of them malformed: the dry run": Situation(
        _refused,
        "dlq redrive request --all --dry-run",
        says=(
            *(f"would be sent: {request_id}, attempt 2" for request_id in _REQUESTS),
            "left: m-bad  InvalidRequest: it is not a valid request",
            "RequestDeadLetterQueue: 14 messages would be sent again, 1 left, 0 failed.",
        ),
        never=("could not be read",),
        shows={"unread": None, "dry_run": True, "redriven.13.request_id": "r13", "skipped.0.process": "sample"},
    ),
    "15 requests of one process, one of them malformed: the run sends what the dry run named, in order": Situation(
        _refused,
        "dlq redrive request --all --yes",
        says=(
            *(f"sent: {request_id}, attempt 2" for request_id in _REQUESTS),
            "left: m-bad  InvalidRequest: it is not a valid request",
            "RequestDeadLetterQueue: 14 messages sent again, 1 left, 0 failed.",
        ),
    ),
    "a process was removed with 15 waiting requests: the last one is found": Situation(
        _process_removed,
        "request show r14",
        says=("r14 in gone: dead-lettered", "in RequestDeadLetterQueue, UnknownProcess"),
        shows={"found.0.state": "dead-lettered"},
    ),
    "a process was removed with 15 waiting requests: none can be sent before it is added again": Situation(
        _process_removed,
        "dlq redrive request --all --yes",
        says=(
            "left: r0  UnknownProcess: there is no process 'gone'. Add it with: "
            "slotkeeper process add gone --limit 1 --target JOB_OR_ARN",
            "0 messages sent again, 15 left, 0 failed.",
            "nothing was sent: 15 messages left, for the reasons above",
        ),
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
        _refused,
        "dlq redrive request --code Expired --yes",
        says=("RequestDeadLetterQueue has no message to send again.", "there is no message of code Expired"),
        exit_code=4,
    ),
    "20 malformed messages: counted and listed": Situation(
        _malformed,
        "dlq list request --limit 15",
        says=(
            "RequestDeadLetterQueue (request): 20  (20 InvalidRequest)",
            "m-0 (sample, attempt 1)  InvalidRequest: because of InvalidRequest",
            "5 more not shown: above --limit 15",
        ),
        never=("could not be read",),
        shows={"queues.0.codes.InvalidRequest": 20, "queues.0.dead_letters.14.process": "sample"},
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
