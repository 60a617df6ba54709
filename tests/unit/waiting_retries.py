"""Waiting retries, for the tests of operators' commands."""

from __future__ import annotations

import json
from typing import Any

from slotkeeper.retry.ledger import MAX_HISTORY_ENTRIES, WAITING
from slotkeeper.retry.message import Message, instant
from tests.simulation.account.boundary import Killed
from tests.unit.worker_harness import NOW, WorkerHarness

LATER = {"default": {"backoff": "fixed", "jitter": "none", "base_seconds": 3000, "max_attempts": 3}}
SOON = {"default": {"backoff": "fixed", "jitter": "none", "base_seconds": 300, "max_attempts": 3}}


def fail_once(workplace: WorkerHarness, policy: dict[str, Any] = LATER) -> None:
    """A request "r" whose first attempt has failed, and whose second attempt waits."""
    workplace.put_policy(json.dumps(policy))
    workplace.deliver(workplace.send(fails=1))
    workplace.wait(60)


def killed() -> None:
    raise Killed


def meanwhile(workplace: WorkerHarness, act: Any) -> Any:
    with workplace.unnoted():
        return act()


MADE = MAX_HISTORY_ENTRIES + 3


def put_long_row(workplace: WorkerHarness) -> list[str]:
    """A waiting request with more attempts than its row has entries; returns the times of the entries."""
    times = {attempt: instant(NOW + attempt) for attempt in (1, *range(5, MADE + 1))}
    history = [
        {"M": {"attempt": {"N": str(attempt)}, "at": {"S": at}, "error": {"S": "not now"}}}
        for attempt, at in times.items()
    ]
    workplace.put_row(
        status={"S": WAITING},
        attempts={"N": str(MADE)},
        claim={"S": "claim"},
        payload_hash={"S": Message("r", {"fails": 99}).payload_hash},
        last_attempt_at={"S": times[MADE]},
        next_attempt_at={"S": instant(NOW + 300)},
        history={"L": history},
    )
    return list(times.values())
