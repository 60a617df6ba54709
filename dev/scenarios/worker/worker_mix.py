"""The requests of `make run-worker`, and the downstream's answer to each attempt, drawn from a seed. Seconds.

The inputs are months of the sample data as JSON Lines, which the worker splits by the day's weather. Six in ten
requests are normal, three in ten too slow at first, one in ten is poison. Two in ten of all other attempts fail. No
request has more failures than the policy allows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from dev.emulator.downstream import Answer, Step
from dev.emulator.sample_data import SPLIT_BY, content, months_as_json_lines

NO_FIELD = "station"  # in no line
Kind = Literal["normal", "slow", "poison"]
KINDS: tuple[Kind, ...] = ("normal", "slow", "poison")
SLOW, POISON = 0.3, 0.1  # shares of the requests; all others are normal
FAILING = 0.2  # share of the attempts
FAILURES: tuple[Answer, ...] = ("slow_down", "error", "drop")
FASTEST, SLOWEST = 1.0, 6.0  # before SCALE
MAX_ATTEMPTS = 8
MAX_FAILURES = MAX_ATTEMPTS - 3  # three attempts are left for failures of a busy machine
POLICY: dict[str, Any] = {
    "default": {
        "backoff": "exponential",
        "jitter": "equal",
        "base_seconds": 2,
        "cap_seconds": 5,
        "max_attempts": MAX_ATTEMPTS,
        "max_age_seconds": 1800,
    },
    # For a downstream that recovers in seconds, and at which four in ten calls fail at any time.
    "downstream": {
        "breaker": {"failure_threshold": 5, "window_calls": 5, "recovery_seconds": 3},
        "concurrency": {"window_seconds": 2},
    },
}


@dataclass(frozen=True)
class Poison:
    """The expected content of a dead letter. `reason`: a part of it."""

    code: str
    reason: str


@dataclass(frozen=True)
class Request:
    """One message of the run.

    Args:
        request_id: if the body is no valid message, a name that only the run uses.
        content: the input object, or None.
        steps: the downstream's answers to its attempts.
    """

    request_id: str
    kind: Kind
    key: str
    body: str
    content: bytes | None = field(repr=False)
    steps: tuple[Step, ...] = ()
    poison: Poison | None = None

    @property
    def is_message(self) -> bool:
        """Whether the body is a valid message, so that the ledger has a row."""
        return self.poison is None or self.poison.code != "InvalidMessage"


def limit(scale: float) -> int:
    """The limit of an attempt in seconds: one more than the slowest normal call."""
    return math.ceil(SLOWEST * scale) + 1


def damaged(lines: Sequence[str]) -> tuple[bytes, int]:
    """The same input with half a line in the middle, and the line's number from 1."""
    number = len(lines) // 2
    broken = list(lines)
    broken[number - 1] = broken[number - 1][: len(broken[number - 1]) // 2]
    return content(broken), number


def counts(requests: int) -> dict[Kind, int]:
    slow, poison = round(SLOW * requests), round(POISON * requests)
    return {"normal": requests - slow - poison, "slow": slow, "poison": poison}


def draw(requests: int, seed: int, scale: float) -> list[Request]:
    """The requests in their order of sending. The same arguments give the same requests."""
    chance = Random(seed)  # noqa: S311 - a load, not a secret
    kinds = [kind for kind, count in counts(requests).items() for _ in range(count)]
    chance.shuffle(kinds)
    months = list(months_as_json_lines().items())
    drawn: list[Request] = []
    for number, kind in enumerate(kinds, 1):
        month, lines = months[(number - 1) % len(months)]
        # The slash tests quoting in keys.
        request_id = f"{month}/{number:04d}"
        if kind == "poison":
            poisoned = sum(request.kind == "poison" for request in drawn)
            drawn.append(_poisoned(poisoned, request_id, lines, _seconds(chance, scale)))
            continue
        steps, key = _steps(chance, kind, scale), _key(request_id)
        body = _body(request_id, {"input_key": key, "split_by": SPLIT_BY})
        drawn.append(Request(request_id, kind, key, body, content(lines), steps))
    return drawn


def _seconds(chance: Random, scale: float) -> float:
    return round(chance.uniform(FASTEST * scale, SLOWEST * scale), 3)


def _steps(chance: Random, kind: Kind, scale: float) -> tuple[Step, ...]:
    steps: list[Step] = []
    if kind == "slow":
        too_long = limit(scale) + _seconds(chance, 1.0)
        steps += [Step(too_long)] * chance.choice((1, 2))
    while len(steps) < MAX_FAILURES and chance.random() < FAILING:
        steps.append(Step(_seconds(chance, scale), chance.choice(FAILURES)))
    return (*steps, Step(_seconds(chance, scale)))


def _poisoned(number: int, request_id: str, lines: Sequence[str], seconds: float) -> Request:
    """The six kinds of poison in turn."""
    key, whole, (broken, line) = _key(request_id), content(lines), damaged(lines)
    payload, call = {"input_key": key, "split_by": SPLIT_BY}, (Step(seconds),)
    body, no_field = _body(request_id, payload), _body(request_id, payload | {"split_by": NO_FIELD})
    no_id, text = json.dumps({"payload": payload}), f"split {key} by {SPLIT_BY}, please"
    kinds: tuple[tuple[Poison, str, bytes | None, tuple[Step, ...]], ...] = (
        (Poison("Poison", "does not exist. Upload it"), body, None, call),
        (Poison("Poison", f"line {line} is not JSON"), body, broken, call),
        (Poison("Poison", f"has no field {NO_FIELD!r}"), no_field, whole, call),
        (Poison("Poison", "split_by"), _body(request_id, {"input_key": key}), whole, ()),
        (Poison("InvalidMessage", "JSON"), text, whole, ()),
        (Poison("InvalidMessage", "request_id"), no_id, whole, ()),
    )
    poison, body, input_, steps = kinds[number % len(kinds)]
    return Request(request_id, "poison", key, body, input_, steps, poison=poison)


def _key(request_id: str) -> str:
    return f"work/input/{request_id.replace('/', '-')}.jsonl"


def _body(request_id: str, payload: dict[str, str]) -> str:
    return json.dumps({"request_id": request_id, "payload": payload})
