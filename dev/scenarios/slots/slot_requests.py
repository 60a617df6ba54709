"""The requests of `make run`, one for each month of the sample data, and their sending."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from dev.emulator.sample_data import read_dataset, split_by_month
from dev.scenarios.runner import sending
from dev.scenarios.runner.whole_run import Sending
from slotkeeper.slots.request import DEFAULT_PRIORITY, Priority, execution_name

PROCESS = "sample"  # the template's default of ProcessName
MACHINE_PROCESS = "weather"
NOT_A_NUMBER = "n/a"


@dataclass(frozen=True)
class Request:
    """One message for RequestQueue.

    Args:
        damaged: its input makes the work fail.
        input: of a state machine, which has no `arguments`.
    """

    request_id: str
    damaged: bool
    arguments: Mapping[str, str]
    priority: Priority = DEFAULT_PRIORITY
    weight: int = 1
    input: Mapping[str, Any] | None = None
    process: str = PROCESS

    def body(self) -> dict[str, Any]:
        """A request of normal priority and weight 1 states neither."""
        body: dict[str, Any] = {"process": self.process, "request_id": self.request_id}
        body |= {"arguments": self.arguments} if self.input is None else {"input": self.input}
        body |= {"priority": self.priority} if self.priority != DEFAULT_PRIORITY else {}
        return body | ({"weight": self.weight} if self.weight != 1 else {})


@dataclass(frozen=True)
class SentRequest:
    """A request that SQS accepted at `at`."""

    request: Request
    at: float

    def sending(self, execution: str = "", outcome: str = "") -> Sending:
        """The message, as the audit judges it.

        Args:
            execution: of a request whose caller waits, whose name contains the caller.
            outcome: by default that of its input.
        """
        request = self.request
        name = execution or execution_name(request.process, request.request_id, 1)
        return Sending(name, self.at, outcome or ("FAILED" if request.damaged else "SUCCEEDED"))


def months(requests: int, fail: float) -> Iterator[tuple[str, str, bytes, bool]]:
    """A request id, month, its CSV, and whether to damage it, for each request; from the first month again."""
    of_months = list(split_by_month(read_dataset()).items())
    run_id = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    for i, damaged in enumerate(evenly_marked(fail, requests)):
        month, text = of_months[i % len(of_months)]
        yield f"{run_id}-{i + 1:04d}-{month}", month, text, damaged


def evenly_marked(share: float, count: int) -> list[bool]:
    """`count` marks, of which the share is True and evenly spread. A share above 0 marks at least one."""
    marked = max(1, round(share * count)) if share > 0 else 0
    return [(i + 1) * marked // count > i * marked // count for i in range(count)]


def damage(body: bytes) -> bytes:
    """The same month with a sensor failure in the middle: one day's temp_max is not a number."""
    lines = body.decode().splitlines()
    middle = 1 + (len(lines) - 1) // 2
    cells = lines[middle].split(",")
    cells[lines[0].split(",").index("temp_max")] = NOT_A_NUMBER
    lines[middle] = ",".join(cells)
    return ("\n".join(lines) + "\n").encode()


def for_the_job(requests: int, fail: float) -> tuple[list[Request], dict[str, bytes]]:
    """The requests of the Glue job, and the inputs that they read, by key."""
    made, inputs = [], dict[str, bytes]()
    for request_id, month, text, damaged in months(requests, fail):
        key = f"input/{'damaged/' if damaged else ''}{month}.csv"
        inputs.setdefault(key, damage(text) if damaged else text)
        arguments = {"--input_key": key, "--output_key": f"output/{request_id}.json"}
        made.append(Request(request_id, damaged, arguments))
    return made, inputs


def for_the_machine(requests: int, fail: float) -> list[Request]:
    """The requests of the state machine, which have the days of their month as input."""
    made = []
    for request_id, month, text, damaged in months(requests, fail):
        days: list[dict[str, float | str]] = [
            {name: float(day[name]) for name in ("temp_max", "precipitation")}
            for day in csv.DictReader(text.decode().splitlines())
        ]
        if damaged:
            days[len(days) // 2]["temp_max"] = NOT_A_NUMBER
        given = {"month": month, "days": days}
        made.append(Request(request_id, damaged, {}, input=given, process=MACHINE_PROCESS))
    return made


def send(sqs: Any, queue_url: str, requests: Sequence[Request]) -> list[SentRequest]:
    """Send all of them, as a producer would. Raises SendFailed.

    A call that is repeated after a lost answer has no effect, since every entry has its deduplication id.
    """
    entries = {
        request.request_id: {
            "MessageBody": json.dumps(request.body()),
            "MessageGroupId": request.process,
            "MessageDeduplicationId": str(uuid4()),
        }
        for request in requests
    }
    sent = sending.send(sqs, queue_url, entries)
    return [SentRequest(request, at) for request, (_, at) in zip(requests, sent, strict=True)]
