"""The queues in which requests and work end that did not succeed, and their messages, the letters.

    request    RequestDeadLetterQueue           requests that could not be used, or were cancelled; FIFO
    failed     FailedRequestQueue               requests that were started and did not succeed
    work       WorkDeadLetterQueue              work that was given up
    schedule   RetryScheduleDeadLetterQueue     retries of work that EventBridge Scheduler could not send

Looking at them hides them from others for as long as it takes, and nobody else consumes these queues. RequestQueue and
WorkQueue are never looked at: a receipt handle of theirs belongs to whoever works on the message.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from slotkeeper.slots.names import execution_name
from slotkeeper_cli.stack import Stack
from slotkeeper_cli.words import iso

# Seconds for which what was received is hidden: longer than a batch takes to be sent on, each call with its retries.
HIDDEN = 120
# Seconds to listen for more. Long polling asks all of SQS's servers, so an empty answer is believed (SQS guide, "Amazon
# SQS short and long polling").
LISTEN = 1
_BATCH = 10


class Queue(StrEnum):
    """The queues by the short names that commands take."""

    REQUEST = "request"
    FAILED = "failed"
    WORK = "work"
    SCHEDULE = "schedule"

    @property
    def full_name(self) -> str:
        """The name of its resource in the template."""
        return _NAMES[self]

    def is_deployed(self, stack: Stack) -> bool:
        """Whether a stack has it: the worker's two queues are deployed with the worker."""
        return f"{self.full_name}Url" in stack.outputs

    def url(self, stack: Stack) -> str:
        """Where it is on a stack."""
        return stack.outputs[f"{self.full_name}Url"]


_NAMES = {
    Queue.REQUEST: "RequestDeadLetterQueue",
    Queue.FAILED: "FailedRequestQueue",
    Queue.WORK: "WorkDeadLetterQueue",
    Queue.SCHEDULE: "RetryScheduleDeadLetterQueue",
}


@dataclass(frozen=True)
class Letter:
    """A message of one of the queues. `sent_at` is when it came there, in seconds since the epoch."""

    queue: Queue
    message_id: str
    receipt_handle: str
    body: str
    group: str
    sent_at: float
    attributes: Mapping[str, str]

    @property
    def code(self) -> str:
        """Why it is there, in a word; `none` if SQS moved it by itself."""
        names = {Queue.FAILED: "error", Queue.SCHEDULE: "ERROR_CODE"}
        return self.attributes.get(names.get(self.queue, "code"), "none")

    @property
    def reason(self) -> str:
        """Why it is there, in a sentence or two."""
        names = {Queue.FAILED: "cause", Queue.SCHEDULE: "ERROR_MESSAGE"}
        moved = "SQS moved it by itself: it was received as often as its queue allows"
        return self.attributes.get(names.get(self.queue, "reason"), "" if self.attributes else moved)

    @property
    def fields(self) -> Mapping[str, Any]:
        """The body, if it is a JSON object of characters; else nothing."""
        try:
            fields = json.loads(self.body)
            # An escaped half of a surrogate pair is JSON, and can be neither shown nor hashed.
            json.dumps(fields, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            return {}
        return fields if isinstance(fields, dict) else {}

    @property
    def request_id(self) -> str:
        """The idempotency key. Where a request's sender gave none, the id of the message that brought it stands in."""
        given = self.fields.get("request_id")
        if isinstance(given, str) and given:
            return given
        if self.queue in (Queue.WORK, Queue.SCHEDULE):
            return self.attributes.get("idempotency_key", "")
        # SQS keeps a message's id when it moves it by itself, and then there is no attribute. What failed without an id
        # was started by hand, and has that of its letter.
        return self.attributes.get("source_message_id", self.message_id)

    @property
    def attempt(self) -> int:
        """Which attempt at its request this was."""
        if self.queue in (Queue.WORK, Queue.SCHEDULE):
            retries = self.fields.get("retries")
            made = len(retries) if isinstance(retries, list) else 0
            return made + (self.queue is Queue.SCHEDULE)
        attempt = self.fields.get("attempt", 1)
        return attempt if isinstance(attempt, int) else 1

    @property
    def process(self) -> str:
        """The process of a request; empty if the letter does not say."""
        process = self.fields.get("process")
        return process if isinstance(process, str) else self.group

    @property
    def execution(self) -> str:
        """The name of a request's execution, whether it was started or not."""
        if self.queue in (Queue.WORK, Queue.SCHEDULE):
            return ""
        named = self.attributes.get("execution_name", "")
        return named or execution_name(self.process, self.request_id, self.attempt)

    def summary(self) -> dict[str, Any]:
        """What a list shows of it."""
        told: dict[str, Any] = {
            "message_id": self.message_id,
            "code": self.code,
            "reason": self.reason,
            "request_id": self.request_id,
            "attempt": self.attempt,
            "since": iso(self.sent_at),
        }
        if self.queue in (Queue.REQUEST, Queue.FAILED):
            told |= {"process": self.process, "execution": self.execution}
        return told


class Box:
    """One of the queues on a stack."""

    def __init__(self, stack: Stack, queue: Queue) -> None:
        self.queue = queue
        self._sqs = stack.client("sqs")
        self._url = queue.url(stack)
        self._deleted: set[str] = set()

    def size(self) -> int:
        """About how many letters there are, those that somebody looks at included."""
        counted = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        told = self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=counted)["Attributes"]
        return sum(int(told.get(name, 0)) for name in counted)

    def take(self) -> list[Letter]:
        """Up to ten letters, hidden from others until they are deleted or given back; none if there are no more."""
        answer = self._sqs.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=_BATCH,
            VisibilityTimeout=HIDDEN,
            WaitTimeSeconds=LISTEN,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return [self._letter(message) for message in answer.get("Messages", [])]

    def peek(self, most: int) -> list[Letter]:
        """The first letters of the queue, which stay where they are.

        Of RequestDeadLetterQueue at most ten a process: a FIFO queue shows no more of a group behind hidden ones.
        """
        seen: dict[str, Letter] = {}
        taken: list[Letter] = []
        try:
            while len(seen) < most and (batch := self.take()):
                taken += batch
                # What is hidden for too short a time comes again, and so would this never end.
                if all(letter.message_id in seen for letter in batch):
                    break
                seen |= {letter.message_id: letter for letter in batch}
        finally:
            self.give_back(taken)
        return list(seen.values())[:most]

    def give_back(self, letters: list[Letter]) -> None:
        """Makes letters visible again. One that was deleted, or whose time is over, is no error."""
        here = [letter for letter in letters if letter.message_id not in self._deleted]
        for start in range(0, len(here), _BATCH):
            entries = [
                {"Id": str(number), "ReceiptHandle": letter.receipt_handle, "VisibilityTimeout": 0}
                for number, letter in enumerate(here[start : start + _BATCH])
            ]
            self._sqs.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)

    def delete(self, letter: Letter) -> None:
        """Removes a letter that was taken."""
        self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=letter.receipt_handle)
        self._deleted.add(letter.message_id)

    def sweep(self) -> Generator[list[Letter]]:
        """All letters, each once, in batches; whoever takes a batch deletes what need not stay.

        What stays is hidden until the others have been seen, and then given back. A FIFO queue shows nothing of a
        group behind a hidden letter, so it is gone over again until that shows nothing new; ten that stay at the head
        of a group hide the others of it.
        """
        known: set[str] = set()
        while True:
            before = len(known)
            taken: list[Letter] = []
            try:
                while batch := self.take():
                    taken += batch
                    new = [letter for letter in batch if letter.message_id not in known]
                    if not new:
                        break  # they were hidden for long enough for others, and come again
                    known |= {letter.message_id for letter in new}
                    yield new
            finally:
                self.give_back(taken)
            if len(known) == before or self.queue is not Queue.REQUEST:
                return

    def _letter(self, message: Mapping[str, Any]) -> Letter:
        attributes = message.get("MessageAttributes", {})
        return Letter(
            queue=self.queue,
            message_id=message["MessageId"],
            receipt_handle=message["ReceiptHandle"],
            body=message["Body"],
            group=message["Attributes"].get("MessageGroupId", ""),
            sent_at=int(message["Attributes"]["SentTimestamp"]) / 1000,
            attributes={name: value["StringValue"] for name, value in attributes.items() if "StringValue" in value},
        )
