"""The requests, the faults and their times, drawn from the seed alone, so that a run can be repeated. Pure.

Their interleaving with the workflows depends on the machine.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

PROCESSES = ("soak-a", "soak-b", "soak-c")
# Seconds. Some runs outlive their workflow by more than the grace time and two janitor runs.
SHORT_JOB, LONG_JOB = (0.2, 2.5), (7.0, 11.0)
SHARE_LONG, SHARE_FAIL, SHARE_HANG = 0.15, 0.10, 0.03
SLOT_SECONDS = 4.0  # approximate seconds for which a request holds a slot, to compute the number of requests
LOAD = 0.55  # share of the slots' capacity without faults; a disturbed request takes more than twice its time
CALM = 0.93  # share of the minutes after which no new fault acts
RESTARTS = ((0.35, False), (0.55, True), (0.75, True))  # share of the minutes, and whether the engine is killed
SHORT = 1.0  # minutes; a shorter run has time for one restart only
FAULT_EVERY = 2.0  # seconds

# The number of each kind in a deck. A plan takes shuffled decks, so that no kind is rare and none is periodic.
DECK: Mapping[str, int] = {
    "abort": 5,
    "abort at a step": 6,
    "abort, run left alive": 2,
    "fault in a task": 9,
    "fault in StartExecution": 4,
    "fault in an API call": 4,
    "containers killed": 3,
    "limit changed": 3,
    "paused": 1,
    "status events lost": 1,
    "bad message": 2,
    "redelivery": 3,
    "sent again": 1,
    "woken for nothing": 1,
    "redriven": 2,
}
RESTARTED = ("engine restarted", "engine killed")

ABORT_STEPS = ("ConfirmSlot", "RunGlueJob", "KeepRequest", "ReleaseSlot", "ReadWaiting", "WakeWaiting", "NotifyFailure")
_THROTTLED, _INTERNAL = "DynamoDB.ProvisionedThroughputExceededException", "DynamoDB.InternalServerErrorException"
TASK_FAULTS = (
    ("ConfirmSlot", "refuse", _THROTTLED),
    ("ConfirmSlot", "lose_answer", _INTERNAL),
    ("ConfirmSlot", "delay", ""),
    ("RunGlueJob", "refuse", "Glue.ConcurrentRunsExceededException"),
    ("RunGlueJob", "refuse", "Glue.ThrottlingException"),
    ("RunGlueJob", "refuse", "Glue.InternalServiceException"),
    ("RunGlueJob", "lose_answer", "Glue.InternalServiceException"),
    ("RunGlueJob", "lose_answer", "States.Timeout"),
    ("FindGlueRun", "refuse", "Glue.InternalServiceException"),
    ("KeepRequest", "refuse", "Sqs.RequestThrottledException"),
    ("KeepRequest", "lose_answer", "Sqs.SqsException"),
    ("ReleaseSlot", "refuse", _THROTTLED),
    ("ReleaseSlot", "lose_answer", _INTERNAL),
    ("ReleaseSlot", "late", ""),
    ("ReadWaiting", "refuse", _THROTTLED),
    ("WakeWaiting", "refuse", "Sqs.RequestThrottledException"),
    ("WakeWaiting", "lose_answer", "Sqs.SqsException"),
    ("ReturnRequest", "lose_answer", "Sqs.SqsException"),
    ("NotifyFailure", "refuse", "SNS.ThrottledException"),
)
START_FAULTS = (
    ("lose_answer", ""),
    ("refuse", "ThrottlingException"),
    ("refuse", "ExecutionLimitExceeded"),
    ("refuse", "AccessDeniedException"),
    ("delay", ""),
    ("abort_after", ""),
)
API_FAULTS = (
    ("UpdateItem", "refuse", "ProvisionedThroughputExceededException"),
    ("UpdateItem", "lose_answer", ""),
    ("GetItem", "refuse", "ProvisionedThroughputExceededException"),
    ("ChangeMessageVisibility", "refuse", "RequestThrottled"),
    ("ChangeMessageVisibility", "lose_answer", ""),
    ("SendMessage", "lose_answer", ""),
    ("DescribeExecution", "refuse", "ThrottlingException"),
    ("GetJobRuns", "refuse", "ThrottlingException"),
)
KILLED_IN = ("UpdateItem", "StartExecution", "ChangeMessageVisibility", "GetItem", "DescribeExecution", "")
BAD = ("not JSON", "unknown process", "another group", "reserved argument")


@dataclass(frozen=True)
class Send:
    """A request, sent `at` seconds after the start, whose job takes `seconds` and ends as `ending` states."""

    at: float
    process: str
    request_id: str
    seconds: float
    ending: str

    def body(self) -> dict[str, Any]:
        arguments = {"--seconds": f"{self.seconds:.2f}", "--ending": self.ending}
        return {"process": self.process, "request_id": self.request_id, "arguments": arguments}


@dataclass(frozen=True)
class Fault:
    """A fault `at` seconds after the start. The meaning of `fields` depends on the kind."""

    at: float
    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    sends: list[Send]
    faults: list[Fault]
    limits: Mapping[str, int]
    seconds: float


def limits_of(limit: int) -> dict[str, int]:
    """The slots of each process: `limit`, one less, and one."""
    return dict(zip(PROCESSES, (limit, max(1, limit - 1), 1), strict=True))


def draw(minutes: float, seed: int, limit: int) -> Plan:
    """The plan of one run."""
    random_ = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    seconds, limits = minutes * 60, limits_of(limit)
    sends = sorted(
        (send for process in PROCESSES for send in _sends(random_, process, limits[process], seconds)),
        key=lambda send: send.at,
    )
    faults = [*_faults(random_, limits, seconds), *_restarts(minutes)]
    return Plan(sends, sorted(faults, key=lambda fault: fault.at), limits, seconds)


def burst(limits: Mapping[str, int], each: int) -> list[Send]:
    """The requests after the faults: for each process as many as it has slots, and `each` more."""
    return [
        Send(0.0, process, f"calm-{process}-{number}", 0.3, "succeed")
        for process, limit in limits.items()
        for number in range(limit + each)
    ]


def _sends(random_: random.Random, process: str, limit: int, seconds: float) -> list[Send]:
    """Groups of requests with pauses, so that queues grow and become empty."""
    rate = LOAD * limit / SLOT_SECONDS
    made, at, numbers = [], random_.uniform(0, 1), count(1)
    while at < seconds:
        together = random_.randint(1, 2 * limit + 1)
        for _ in range(together):
            drawn = random_.random()
            ending = "fail" if drawn < SHARE_FAIL else "hang" if drawn < SHARE_FAIL + SHARE_HANG else "succeed"
            request_id = f"{process}-{next(numbers):04d}"
            working = random_.uniform(*(LONG_JOB if random_.random() < SHARE_LONG else SHORT_JOB))
            made.append(Send(round(at, 2), process, request_id, working, ending))
        at += random_.expovariate(rate / together)
    return made


def _faults(random_: random.Random, limits: Mapping[str, int], seconds: float) -> list[Fault]:
    made: list[Fault] = []
    deck: list[str] = []
    at = 1.0
    while at < seconds * CALM:
        if not deck:
            deck = [kind for kind, number in DECK.items() for _ in range(number)]
            random_.shuffle(deck)
        kind = deck.pop()
        made.append(Fault(round(at, 2), kind, _fields(random_, kind, limits)))
        at += random_.uniform(0.2, 2 * FAULT_EVERY - 0.2)
    return made


def _fields(random_: random.Random, kind: str, limits: Mapping[str, int]) -> dict[str, Any]:
    process = random_.choice(PROCESSES)
    # Most faults have ended at the second attempt. Some outlast every attempt of a call.
    times = random_.choice((1, 1, 2, 3, 5))
    match kind:
        case "abort at a step":
            return _rule(random_.choice(ABORT_STEPS), random_.choice(("abort_before", "abort_after")), "", 1)
        case "fault in a task":
            return _rule(*random_.choice(TASK_FAULTS), times)
        case "fault in StartExecution":
            return _rule("StartExecution", *random_.choice(START_FAULTS), times)
        case "fault in an API call":
            return _rule(*random_.choice(API_FAULTS), times)
        case "containers killed":
            return {"call": random_.choice(KILLED_IN)}
        case "limit changed":
            limit = random_.choice([new for new in range(limits[process] + 3) if new != limits[process]])
            return {"process": process, "limit": limit, "seconds": random_.uniform(3, 9)}
        case "paused" | "status events lost":
            return {"process": process, "seconds": random_.uniform(3, 9)}
        case "bad message":
            return {"process": process, "what": random_.choice(BAD)}
    return {"process": process, "draw": random_.random()}


def _rule(state: str, action: str, error: str, times: int) -> dict[str, Any]:
    return {"state": state, "action": action, "error": error, "times": times}


def _restarts(minutes: float) -> list[Fault]:
    planned = ((0.5, True),) if minutes < SHORT else RESTARTS
    return [Fault(round(share * minutes * 60, 2), RESTARTED[hard], {"hard": hard}) for share, hard in planned]
