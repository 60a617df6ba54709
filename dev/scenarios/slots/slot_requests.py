"""What `make run` sends: a request for each month of the sample data, and the inputs they read."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import batched
from typing import Any

from dev.emulator.sample_data import split_by_month
from dev.scenarios.runner.sending import BATCH, send_batch

PROCESS = "sample"  # the template's default of ProcessName


@dataclass(frozen=True)
class Request:
    """One message for RequestQueue. `damaged`: the job must fail on its input."""

    request_id: str
    month: str
    arguments: dict[str, str]
    damaged: bool

    @property
    def output_key(self) -> str:
        return self.arguments["--output_key"]

    def body(self) -> dict[str, Any]:
        """The message of the design's contract."""
        return {"process": PROCESS, "request_id": self.request_id, "arguments": self.arguments}


@dataclass(frozen=True)
class WorkList:
    """`inputs`: objects by key."""

    inputs: dict[str, bytes]
    requests: list[Request]


@dataclass(frozen=True)
class SentRequest:
    """A request that SQS has taken. `sequence` is SQS's own order within the message group; `at` is epoch seconds."""

    request: Request
    sequence: int
    at: float


def damage(body: bytes) -> bytes:
    """The same month with a sensor's failure in the middle: one day's temp_max is not a number."""
    lines = body.decode().splitlines()
    middle = 1 + (len(lines) - 1) // 2
    cells = lines[middle].split(",")
    cells[lines[0].split(",").index("temp_max")] = "n/a"
    lines[middle] = ",".join(cells)
    return ("\n".join(lines) + "\n").encode()


def evenly_marked(share: float, count: int) -> list[bool]:
    """`count` marks of which the share is True, evenly spread and the same each time; any share above 0 marks one."""
    marked = max(1, round(share * count)) if share > 0 else 0
    return [(i + 1) * marked // count > i * marked // count for i in range(count)]


def plan(text: str, *, requests: int, fail: float, run_id: str) -> WorkList:
    """One request a month, in the order of the months, again from the first month when there are more requests.

    A damaged request reads a copy of its month that really is damaged. Only inputs that some request reads are listed.
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
    """Send all of them, ten a call, as a producer would. A call that is repeated after a lost answer changes nothing,
    since every entry carries its deduplication id. Raises SendFailed."""
    sent: list[SentRequest] = []
    for batch in batched(requests, BATCH, strict=False):
        entries = {
            request.request_id: {
                "MessageBody": json.dumps(request.body()),
                "MessageGroupId": PROCESS,
                "MessageDeduplicationId": request.request_id,
            }
            for request in batch
        }
        answers = send_batch(sqs, queue_url, entries, len(sent))
        now = time.time()
        pairs = zip(batch, answers, strict=True)
        sent += [SentRequest(request, int(answer["SequenceNumber"]), now) for request, answer in pairs]
    return sent
