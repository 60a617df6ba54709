"""What a call costs before it leaves the process: botocore with an answer that is there at once, and no network.

It tells apart what Slots adds to a call, what the longer request adds, and what a client's settings could save.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Any

from botocore.awsrequest import AWSResponse, HeadersDict
from botocore.config import Config

from dev.benchmarks.outcome import Grid
from dev.benchmarks.slot_cycle.designs import PROCESS
from dev.benchmarks.slot_cycle.tables import middle_half
from dev.emulator.clients import local_client
from slotkeeper.aws.clients import QUICK
from slotkeeper.slots import protocol
from slotkeeper.slots.names import execution_name
from slotkeeper.slots.protocol import Slots

TABLE = "slots"
ME = execution_name(PROCESS, "me", 1)
NOW = 1_789_999_999.0
CALLS = 20  # in a row: the clock of the processor's time is coarse
WARM = 100
RESERVE = "Slots.reserve"


class _Body:
    """An empty answer, as urllib3 would have it."""

    def stream(self) -> Iterator[bytes]:
        yield b"{}"


def _answer(request: Any, **_: Any) -> AWSResponse:
    headers: Any = HeadersDict({"content-type": "application/x-amz-json-1.0", "x-amzn-requestid": "R" * 52})
    return AWSResponse(request.url, 200, headers, _Body())


def _client(**settings: Any) -> Any:
    """As the starter has it, with these changes."""
    dynamodb = local_client("dynamodb", "http://127.0.0.1:1", settings=QUICK.merge(Config(**settings)))
    dynamodb.meta.events.register("before-send.dynamodb.*", _answer)
    return dynamodb


def _bare(dynamodb: Any) -> Callable[[], object]:
    return lambda: dynamodb.update_item(
        TableName=TABLE,
        Key={"process_name": {"S": PROCESS}},
        UpdateExpression="SET slots_in_use = slots_in_use + :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
    )


def _same(dynamodb: Any) -> Callable[[], object]:
    entry = {"M": {"state": {"S": "RESERVED"}, "since": {"N": str(int(NOW))}}}
    return lambda: dynamodb.update_item(
        TableName=TABLE,
        Key={"process_name": {"S": PROCESS}},
        UpdateExpression=protocol.RESERVE_UPDATE,
        ConditionExpression=protocol.RESERVE_CONDITION,
        ExpressionAttributeNames={"#me": ME},
        ExpressionAttributeValues={":one": {"N": "1"}, ":entry": entry, ":false": {"BOOL": False}},
        ReturnValuesOnConditionCheckFailure="ALL_OLD",
    )


def _reserve(dynamodb: Any) -> Callable[[], object]:
    slots = Slots(dynamodb, TABLE)
    return lambda: slots.reserve(PROCESS, ME, NOW)


def measure(rounds: int) -> dict[str, list[float]]:
    """Processor seconds of a call in each round, by what is called; in turns."""
    usual = _client()
    calls: Mapping[str, Callable[[], object]] = {
        "bare UpdateItem": _bare(usual),
        "reserve's UpdateItem": _same(usual),
        RESERVE: _reserve(usual),
        f"{RESERVE}, parameters not validated": _reserve(_client(parameter_validation=False)),
        f"{RESERVE}, a fixed user agent": _reserve(_client(user_agent="slotkeeper")),
    }
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(WARM):
            call()
    for _ in range(rounds):
        for name, call in calls.items():
            before = time.process_time()
            for _ in range(CALLS):
                call()
            taken[name].append((time.process_time() - before) / CALLS)
    return taken


def grid(taken: Mapping[str, list[float]]) -> Grid:
    """Microseconds, and what each is beside Slots.reserve in the same round."""
    rows = []
    for name, seconds in taken.items():
        besides = [1e6 * (mine - reserve) for mine, reserve in zip(seconds, taken[RESERVE], strict=True)]
        low, high = middle_half(besides)
        rows.append((name, f"{1e6 * median(seconds):.0f}", f"{median(besides):+.0f} ({low:+.0f} to {high:+.0f})"))
    return Grid(
        "A call before it leaves the process: processor time in microseconds",
        ("call", "median", "beside Slots.reserve (middle half)"),
        rows,
        "botocore with an answer that is there at once. The last two were tried and left: see docs/performance.md.",
    )
