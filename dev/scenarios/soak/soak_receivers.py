"""What the deployed stack has published in a soak: completion events, notifications, and the answers of callers.

A queue receives each event of a request and each notification. A caller is an execution of a state machine, which sends
one request with the token of its task, and ends as it is answered: Step Functions accepts one answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dev.scenarios.runner.checks import check_none
from dev.scenarios.runner.whole_run import STARTED, RefusedMessage, Sending
from slotkeeper.slots.request import caller_of, execution_name
from slotkeeper_cli.audit.check_result import CheckResult
from slotkeeper_cli.audit.work_history import WorkHistory, label_of

CALLER = Path(__file__).with_name("soak-caller.asl.json")
_ROLE = "arn:aws:iam::000000000000:role/any"  # the embedded AWS checks no permissions
_RESTARTED = "States.ServiceRestart"  # of an execution that ran when the engine was restarted
# State -> status of its event; the others are dead-lettered.
_STATUSES = {"SUCCEEDED": "SUCCEEDED", "FAILED": "FAILED", "SKIPPED": "SKIPPED"}

Request = tuple[str, str, int]  # process, id and attempt


@dataclass(frozen=True)
class Answered:
    """A caller: its message, and the error and the status with which it has ended, RUNNING if it has no answer."""

    request_id: str
    sending: Sending
    error: str
    status: str


@dataclass(frozen=True)
class Received:
    """All that was received. Of a message that is no request, its id instead of `Request`.

    Attributes:
        events: with the status of the end.
        notified: the failures.
    """

    events: frozenset[tuple[Request | str, str]] = frozenset()
    notified: frozenset[Request] = frozenset()
    callers: Sequence[Answered] = ()


class Receivers:
    """The queue and the state machine of one soak."""

    def __init__(self, outputs: Mapping[str, str], sqs: Any, stepfunctions: Any, events: Any, sns: Any) -> None:
        self._sqs, self._stepfunctions, self._queue_url = sqs, stepfunctions, outputs["RequestQueueUrl"]
        self._url = sqs.create_queue(QueueName="soak-received")["QueueUrl"]
        asked = sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])
        arn = asked["Attributes"]["QueueArn"]
        sns.subscribe(TopicArn=outputs["FailureTopicArn"], Protocol="sqs", Endpoint=arn)
        events.put_rule(Name="soak-received", EventPattern=json.dumps({"source": ["slotkeeper"]}))
        events.put_targets(Rule="soak-received", Targets=[{"Id": "queue", "Arn": arn}])
        machine = {"name": "soak-caller", "definition": CALLER.read_text(), "roleArn": _ROLE}
        self._caller = stepfunctions.create_state_machine(**machine)["stateMachineArn"]

    def call(self, body: Mapping[str, Any], at: float) -> None:
        """Start a caller that sends this request at a time: it starts before the faults, which act on its calls too."""
        moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        given = json.dumps({"at": moment, "queue_url": self._queue_url, "body": body})
        self._stepfunctions.start_execution(stateMachineArn=self._caller, name=body["request_id"], input=given)

    def waiting(self) -> int:
        """The number of callers without an answer."""
        listed = self._stepfunctions.list_executions(
            stateMachineArn=self._caller, statusFilter="RUNNING", maxResults=1000
        )
        return len(listed["executions"])

    def received(self) -> Received:
        """Everything until now."""
        events, notified = set[tuple[Request | str, str]](), set[Request]()
        while messages := self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10).get("Messages", []):
            for message in messages:
                body = json.loads(message["Body"])
                if "detail" in body:
                    detail = body["detail"]
                    of = _request(detail) if "request_id" in detail else detail["message_id"]
                    events.add((of, detail["status"]))
                else:
                    notified.add(_request(json.loads(body["Message"])))
                self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        pages = self._stepfunctions.get_paginator("list_executions").paginate(stateMachineArn=self._caller)
        callers = (self._answered(each) for page in pages for each in page["executions"])
        return Received(frozenset(events), frozenset(notified), [each for each in callers if each])

    def _answered(self, listed: Mapping[str, Any]) -> Answered | None:
        """A caller; None if it has sent nothing before the engine was restarted, which ends executions."""
        arn = listed["executionArn"]
        history = self._stepfunctions.get_execution_history(executionArn=arn, maxResults=100)
        scheduled = next((each for each in history["events"] if each["type"] == "TaskScheduled"), None)
        described = self._stepfunctions.describe_execution(executionArn=arn)
        if scheduled is None:
            return None
        body = json.loads(scheduled["taskScheduledEventDetails"]["parameters"])["MessageBody"]
        name = execution_name(body["process"], body["request_id"], 1, caller_of(body["task_token"]))
        sending = Sending(name, scheduled["timestamp"].timestamp(), STARTED)
        return Answered(body["request_id"], sending, described.get("error", ""), described["status"])


def _request(of: Mapping[str, Any]) -> Request:
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
            if each.status == "SUCCEEDED" and each.request_id not in succeeded
        ],
    }
    answers = sum(each.error != _RESTARTED for each in received.callers)
    finding = f"{len(ended)} ends, {len(received.notified)} notified failures, {answers} answers"
    return check_none("every end is published: event, notification, answer", problems, finding)
