"""The requests of a run, one for each month of the sample data."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from dev.emulator.sample_data import read_dataset, split_by_month
from dev.scenarios.runner.whole_run import Sending
from slotkeeper.slots.request import DEFAULT_PRIORITY, Priority, execution_name

PROCESS = "sample"  # the template's default of ProcessName
MACHINE_PROCESS = "weather"
NOT_A_NUMBER = "n/a"
DEADLINE = 6.0  # seconds after the sending, until which a request of a run with faults must start


@dataclass(frozen=True)
class Request:
    """One message for RequestQueue.

    Args:
        work: the arguments of a Glue job, or the input of a state machine.
        outcome: what must become of it (see whole_run.Sending).
        leaves: how it may end without a start: SKIPPED, TOO_LATE, or empty.
        has_caller: an execution waits for the answer.
        at: seconds after the start of the run at which it is sent.
        text: of a message that is no request.
    """

    request_id: str
    work: Mapping[str, Any]
    outcome: str = "SUCCEEDED"
    process: str = PROCESS
    priority: Priority = DEFAULT_PRIORITY
    weight: int = 1
    leaves: str = ""
    has_caller: bool = False
    at: float = 0.0
    text: str = ""
    key: str = ""

    @property
    def execution(self) -> str:
        """The name of its first attempt, if no caller waits for it."""
        return execution_name(self.process, self.request_id, 1)

    def body(self, now: float) -> dict[str, Any]:
        """A request of normal priority and weight 1 states neither."""
        body: dict[str, Any] = {"process": self.process, "request_id": self.request_id, **self.work}
        body |= {"priority": self.priority} if self.priority != DEFAULT_PRIORITY else {}
        body |= {"weight": self.weight} if self.weight != 1 else {}
        body |= {"key": self.key} if self.key else {}
        body |= {"when_busy": "skip"} if self.leaves == "SKIPPED" else {}
        if self.leaves == "TOO_LATE":
            deadline = datetime.fromtimestamp(now + DEADLINE, UTC)
            body["start_before"] = deadline.isoformat(timespec="seconds").replace("+00:00", "Z")
        return body

    def message(self, now: float) -> str:
        """The text that is sent."""
        return self.text or json.dumps(self.body(now))


@dataclass(frozen=True)
class SentRequest:
    """A request that SQS accepted at `at`."""

    request: Request
    at: float
    message_id: str = ""

    @property
    def sending(self) -> Sending:
        """The message, as the audit judges it."""
        request = self.request
        return Sending(request.execution, self.at, request.outcome, self.message_id, request.leaves)


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
        made.append(Request(request_id, {"arguments": arguments}, "FAILED" if damaged else "SUCCEEDED"))
    return made, inputs


def with_keys(requests: Sequence[Request], keys: int) -> list[Request]:
    """The first half are of one key, as if it had sent many together; the others are of all keys, one after another."""
    half = len(requests) // 2
    return [replace(each, key=f"customer-{1 + max(0, at - half) % keys}") for at, each in enumerate(requests)]


def for_the_machine(requests: int, fail: float) -> list[Request]:
    """The requests of the state machine, with the days of their month as input; callers wait for half of them."""
    made = []
    for number, (request_id, month, text, damaged) in enumerate(months(requests, fail)):
        days: list[dict[str, float | str]] = [
            {name: float(day[name]) for name in ("temp_max", "precipitation")}
            for day in csv.DictReader(text.decode().splitlines())
        ]
        if damaged:
            days[len(days) // 2]["temp_max"] = NOT_A_NUMBER
        work = {"input": {"month": month, "days": days}}
        outcome = "FAILED" if damaged else "SUCCEEDED"
        made.append(Request(request_id, work, outcome, MACHINE_PROCESS, has_caller=number >= (requests + 1) // 2))
    return made
