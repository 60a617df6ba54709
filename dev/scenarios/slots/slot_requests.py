"""The requests of `make run`: one for each month of the sample data, and their inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dev.emulator.sample_data import split_by_month
from dev.scenarios.runner import sending
from slotkeeper.slots.request import DEFAULT_PRIORITY, Priority, execution_name, message_group
from slotkeeper_cli.audit.work_history import Sending

PROCESS = "sample"  # the template's default of ProcessName


@dataclass(frozen=True)
class Request:
    """One message for RequestQueue.

    Args:
        damaged: its input makes the work fail.
        input: of a state machine, which has no `arguments`.
    """

    request_id: str
    month: str
    arguments: dict[str, str]
    damaged: bool
    priority: Priority = DEFAULT_PRIORITY
    weight: int = 1
    input: Mapping[str, Any] | None = None
    process: str = PROCESS

    @property
    def output_key(self) -> str:
        return self.arguments["--output_key"]

    def body(self) -> dict[str, Any]:
        """A request of normal priority and weight 1 states neither."""
        body: dict[str, Any] = {"process": self.process, "request_id": self.request_id}
        body |= {"arguments": self.arguments} if self.input is None else {"input": self.input}
        body |= {"priority": self.priority} if self.priority != DEFAULT_PRIORITY else {}
        return body | ({"weight": self.weight} if self.weight != 1 else {})


@dataclass(frozen=True)
class WorkList:
    """`inputs`: objects by key."""

    inputs: dict[str, bytes]
    requests: list[Request]


@dataclass(frozen=True)
class SentRequest:
    """A request that SQS accepted at `at`. `sequence`: SQS's order within the message group."""

    request: Request
    sequence: int
    at: float

    def sending(self, execution: str = "", outcome: str = "") -> Sending:
        """The message, as the audit judges it.

        Args:
            execution: of a request whose caller waits, whose name contains the caller.
            outcome: by default that of its input.
        """
        request = self.request
        return Sending(
            execution or execution_name(request.process, request.request_id, 1),
            self.at,
            self.sequence,
            request.priority,
            request.weight,
            outcome=outcome or ("FAILED" if request.damaged else "SUCCEEDED"),
        )


def damage(body: bytes) -> bytes:
    """The same month with a sensor failure in the middle: one day's temp_max is not a number."""
    lines = body.decode().splitlines()
    middle = 1 + (len(lines) - 1) // 2
    cells = lines[middle].split(",")
    cells[lines[0].split(",").index("temp_max")] = "n/a"
    lines[middle] = ",".join(cells)
    return ("\n".join(lines) + "\n").encode()


def evenly_marked(share: float, count: int) -> list[bool]:
    """`count` marks, of which the share is True and evenly spread. A share above 0 marks at least one."""
    marked = max(1, round(share * count)) if share > 0 else 0
    return [(i + 1) * marked // count > i * marked // count for i in range(count)]


def plan(text: str, *, requests: int, fail: float, run_id: str) -> WorkList:
    """One request per month, in order, and from the first month again if there are more requests.

    A damaged request reads a damaged copy of its month. Only inputs that a request reads are listed.
    """
    months = split_by_month(text)
    names = list(months)
    work = WorkList({}, [])
    for i, damaged in enumerate(evenly_marked(fail, requests)):
        month = names[i % len(names)]
        key = f"input/{'damaged/' if damaged else ''}{month}.csv"
        work.inputs.setdefault(key, damage(months[month]) if damaged else months[month])
        request_id = f"{run_id}-{i + 1:04d}-{month}"
        arguments = {"--input_key": key, "--output_key": f"output/{run_id}/{request_id}.json"}
        work.requests.append(Request(request_id, month, arguments, damaged))
    return work


def send(sqs: Any, queue_url: str, requests: Sequence[Request]) -> list[SentRequest]:
    """Send all of them, as a producer would. Raises SendFailed.

    A call that is repeated after a lost answer has no effect, since every entry has its deduplication id.
    """
    entries = {
        request.request_id: {
            "MessageBody": json.dumps(request.body()),
            "MessageGroupId": message_group(request.process, request.priority),
            "MessageDeduplicationId": request.request_id,
        }
        for request in requests
    }
    sent = sending.send(sqs, queue_url, entries)
    pairs = zip(requests, sent, strict=True)
    return [SentRequest(request, int(answer["SequenceNumber"]), at) for request, (answer, at) in pairs]
