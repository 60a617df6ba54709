"""The largest item of a process, and the largest row, fit into DynamoDB."""

from __future__ import annotations

from slotkeeper.aws.dynamodb import Item
from slotkeeper.slots.endings import MAX_REASON
from slotkeeper.slots.outcomes import MAX_CAUSE, MAX_CODE
from slotkeeper.slots.process import MAX_HOLDERS, MAX_SLOT_LIMIT
from slotkeeper.slots.processes import MAX_KEY_LIMITS
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request import MAX_BODY_BYTES, MAX_KEY_BYTES, MAX_TOKEN_CHARACTERS, PRIORITIES, Request
from tests.simulation.aws.attributes import item_bytes
from tests.simulation.frozen import freeze
from tests.unit.conftest import NOW
from tests.unit.slots.queue_scene import QueueScene

LARGEST_ITEM = 400 * 1024  # DynamoDB guide, "Quotas in Amazon DynamoDB"
SPARE = 1024  # for attributes that a later version may add
A_TIME, A_NUMBER = {"N": "1789999999"}, {"N": str(MAX_SLOT_LIMIT - 1)}
TARGET, KEY = {"S": "j" * 255}, {"S": "k" * MAX_KEY_BYTES}


def test_the_largest_item_of_a_process_fits() -> None:
    """Each attribute of protocol.py, of its largest size."""
    names = [f"{number:080}" for number in range(MAX_HOLDERS)]
    holder: Item = {"state": {"S": "RUNNING"}, "since": A_TIME, "weight": A_NUMBER, "job": TARGET}
    holder |= {"quiet_since": A_TIME, "redriven": {"BOOL": True}, "key": KEY}
    item: Item = {
        "process_name": {"S": "p" * 47},
        "slot_limit": A_NUMBER,
        "slots_in_use": A_NUMBER,
        "holders": {"M": {name: {"M": holder} for name in names}},
        "paused": {"BOOL": True},
        "target": TARGET,
        "run_settings": {"M": {"timeout_minutes": A_NUMBER, "settle_seconds": A_NUMBER}},
        "default_weight": A_NUMBER,
        "rate": Rate(99_999, 86_400, 99_999).item,
        "next_start": {"N": "1789999999999"},
        "grants": {"N": "1789999999999"},
        "ring_at": {"N": "1789999999.123"},
        "key_limit": A_NUMBER,
        "key_limits": {"M": {f"{number:064}": A_NUMBER for number in range(MAX_KEY_LIMITS)}},
        "after_keys": {"M": {f"{rank}": KEY for rank in range(len(PRIORITIES))}},
    }
    assert item_bytes(freeze(item)) < LARGEST_ITEM - SPARE


def test_the_largest_row_fits() -> None:
    """A character of UTF-8 has up to four bytes, and a body that is parsed may be written with more of them."""
    scene = QueueScene()
    wide = "\U0001f600"
    arguments = {f"--{number:03}": wide * (MAX_BODY_BYTES // 400) for number in range(100)}
    request = Request("p", arguments, wide * 128, weight=99_999, task_token="t" * MAX_TOKEN_CHARACTERS, key=KEY["S"])
    scene.accept(request)
    scene.requests.mark_started("p", request.execution_name, "9" * 19, NOW)
    scene.record(request.execution_name, "FAILED", code=wide * MAX_CODE, cause=wide * MAX_CAUSE)
    row = scene.row(request.execution_name) | {"reason": {"S": wide * MAX_REASON}, "expires": A_TIME}
    assert {"body", "task_token", "code", "cause", "started", "failed"} <= row.keys()
    assert item_bytes(freeze(row)) < LARGEST_ITEM - SPARE
