"""The publications of the deployed stack in a run: completion events, notifications, and the answers of callers.

A queue receives each event of a request and each notification. A caller is an execution of a state machine, which sends
one request with the token of its task, and ends as it is answered: Step Functions accepts one answer.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dev.emulator import queue_reading
from dev.scenarios.runner.checks import check_none
from dev.scenarios.runner.whole_run import RefusedMessage, Sending
from slotkeeper.slots.request import caller_of, execution_name
from slotkeeper_cli.audit.check_result import CheckResult
from slotkeeper_cli.audit.work_history import WorkHistory, label_of

from .slot_requests import Request

CALLER = Path(__file__).with_name("caller.asl.json")
ROLE = "arn:aws:iam::000000000000:role/any"  # the embedded AWS checks no permissions
# State -> status of its event; the others are dead-lettered.
_STATUSES = {"SUCCEEDED": "SUCCEEDED", "FAILED": "FAILED", "SKIPPED": "SKIPPED"}

Attempt = tuple[str, str, int]  # process, id and number


@dataclass(frozen=True)
class Answered:
    """A caller: its message, and the answer with which it has ended; RUNNING if it has none."""

    request_id: str
    sending: Sending
    status: str
    answer: Any = None


@dataclass(frozen=True)
class Received:
    """The events, notifications and answers of a run. Of a message that is no request, its id instead of `Attempt`.

    Attributes:
        events: with the status of the end.
        notified: the failures.
        outputs: of the work of each execution, if it is a state machine.
    """

    events: frozenset[tuple[Attempt | str, str]] = frozenset()
    notified: frozenset[Attempt] = frozenset()
    callers: Sequence[Answered] = ()
    outputs: Mapping[str, Any] | None = None


class Receivers:
    """The queue and the state machine of one run."""

    def __init__(self, outputs: Mapping[str, str], sqs: Any, stepfunctions: Any, events: Any, sns: Any) -> None:
        self._sqs, self._stepfunctions, self._queue_url = sqs, stepfunctions, outputs["RequestQueueUrl"]
        name = f"run-{secrets.token_hex(4)}"
        self._url = sqs.create_queue(QueueName=name)["QueueUrl"]
        asked = sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])
        arn = asked["Attributes"]["QueueArn"]
        sns.subscribe(TopicArn=outputs["FailureTopicArn"], Protocol="sqs", Endpoint=arn)
        events.put_rule(Name=name, EventPattern=json.dumps({"source": ["slotkeeper"]}))
        events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
        machine = {"name": name, "definition": CALLER.read_text(), "roleArn": ROLE}
        self._caller = stepfunctions.create_state_machine(**machine)["stateMachineArn"]
        self._outcomes: dict[str, str] = {}  # by request id

    def call(self, request: Request, at: float) -> None:
        """Start a caller that sends this request at a time. Under faults it starts before them: they act on calls."""
        self._outcomes[request.request_id] = request.outcome
        moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        given = json.dumps({"at": moment, "queue_url": self._queue_url, "body": request.body(at)})
        self._stepfunctions.start_execution(stateMachineArn=self._caller, name=request.request_id, input=given)

    def waiting(self) -> int:
        """The number of callers without an answer."""
        listed = self._stepfunctions.list_executions(
            stateMachineArn=self._caller, statusFilter="RUNNING", maxResults=1000
        )
        return len(listed["executions"])

    def received(self) -> Received:
        """Everything until now."""
        events, notified = set[tuple[Attempt | str, str]](), set[Attempt]()
        for message in queue_reading.drain(self._sqs, self._url):
            body = json.loads(message["Body"])
            if "detail" in body:
                detail = body["detail"]
                of = _attempt(detail) if "request_id" in detail else detail["message_id"]
                events.add((of, detail["status"]))
            else:
                notified.add(_attempt(json.loads(body["Message"])))
        pages = self._stepfunctions.get_paginator("list_executions").paginate(stateMachineArn=self._caller)
        callers = (self._answered(each["executionArn"]) for page in pages for each in page["executions"])
        return Received(frozenset(events), frozenset(notified), [each for each in callers if each])

    def _answered(self, arn: str) -> Answered | None:
        """A caller; None if it has sent nothing before the engine was restarted, which ends executions."""
        history = self._stepfunctions.get_execution_history(executionArn=arn, maxResults=100)
        scheduled = next((each for each in history["events"] if each["type"] == "TaskScheduled"), None)
        described = self._stepfunctions.describe_execution(executionArn=arn)
        if scheduled is None:
            return None
        body = json.loads(scheduled["taskScheduledEventDetails"]["parameters"])["MessageBody"]
        name = execution_name(body["process"], body["request_id"], 1, caller_of(body["task_token"]))
        sending = Sending(name, scheduled["timestamp"].timestamp(), self._outcomes[body["request_id"]])
        answer = json.loads(described.get("output", "null"))
        return Answered(body["request_id"], sending, described["status"], answer)


def _attempt(of: Mapping[str, Any]) -> Attempt:
    return of["process"], of["request_id"], of["attempt"]


def all_was_published(history: WorkHistory, refused: Sequence[RefusedMessage], received: Received) -> CheckResult:
    """Each end has its event, each failure its notification, each caller its answer.

    A caller that was answered with a failure may have a request that has succeeded since, in a redriven execution.
    """
    ended = [row for row in history.rows if row.ended is not None and row.state not in ("RETURNED", "REDRIVEN")]
    keys = {row.execution: (row.process, row.request_id, row.attempt) for row in ended}
    succeeded = {row.request_id for row in ended if row.state == "SUCCEEDED"}
    problems = {
        "without an event": [
            label_of(row)
            for row in ended
            if (keys[row.execution], _STATUSES.get(row.state, "DEAD_LETTERED")) not in received.events
        ]
        + [each.source for each in refused if (each.source, "DEAD_LETTERED") not in received.events],
        "failed without a notification": [
            label_of(row) for row in ended if row.state == "FAILED" and keys[row.execution] not in received.notified
        ],
        "callers without an answer": [
            f"{each.request_id} ({each.status})"
            for each in received.callers
            if each.status not in ("SUCCEEDED", "FAILED")
        ],
        "callers with another answer than the outcome": [
            each.request_id
            for each in received.callers
            if _is_wrong(each, each.request_id in succeeded, received.outputs)
        ],
    }
    finding = f"{len(ended)} ends, {len(received.notified)} notified failures, {len(received.callers)} callers"
    return check_none("every end is published: event, notification, answer", problems, finding)


def _is_wrong(caller: Answered, has_succeeded: bool, outputs: Mapping[str, Any] | None) -> bool:
    """Whether an answer contradicts the outcome. Without faults the outputs are known, and nothing is redriven."""
    if caller.status == "SUCCEEDED":
        return not has_succeeded or (outputs is not None and caller.answer != outputs.get(caller.sending.execution))
    return caller.status == "FAILED" and has_succeeded and outputs is not None
