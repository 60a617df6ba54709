"""EventBridge Scheduler as a pure function: one-time schedules that send their input to a queue and are then deleted.

It supports only the product's schedules: `at()` in UTC, no flexible window, ActionAfterCompletion DELETE. The world
decides when a schedule fires: at its time or later, at least once (EventBridge Scheduler User Guide, "What is Amazon
EventBridge Scheduler"), or never, in which case its input goes to the target's dead-letter queue.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from tests.simulation.frozen import Record, freeze, record
from tests.simulation.transcript import Answer

# Seconds for which a schedule still exists after it has fired: it is deleted "shortly after" (User Guide, "Automatic
# deletion after schedule completion").
LINGERS = 60
LARGEST_INPUT = 262_144  # assumed; AWS documents no number

_NAME = re.compile(r"[0-9a-zA-Z-_.]{1,64}")  # API Reference, CreateSchedule
_AT = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
_KNOWN = {
    "Name",
    "GroupName",
    "ScheduleExpression",
    "FlexibleTimeWindow",
    "ActionAfterCompletion",
    "Description",
    "Target",
}
_EMPTY = record({})


def schedules() -> Record:
    """No schedule yet: name -> schedule."""
    return _EMPTY


def perform(schedules: Record, operation: str, parameters: Record, now: float) -> tuple[Record, Answer]:
    """One operation; `now` in seconds since the epoch."""
    if operation in ("get_schedule", "delete_schedule"):
        return _look_up(schedules, operation, parameters["Name"], now)
    assert operation == "create_schedule", f"{operation} of EventBridge Scheduler is not simulated"
    assert not set(parameters.fields) - _KNOWN, f"not simulated: {set(parameters.fields) - _KNOWN}"
    return _create(schedules, parameters, now)


def waiting(schedules: Record) -> list[Record]:
    """The schedules that have not fired yet."""
    return [schedule for schedule in schedules.fields.values() if not schedule["fired_at"]]


def fire(schedules: Record, name: str, now: float) -> Record:
    """The schedules after this one has fired. The world sends the Input to the Arn of its `target`."""
    swept = {key: schedule for key, schedule in schedules.fields.items() if not _is_gone(schedule, now)}
    return record(swept | {name: schedules[name].with_fields(fired_at=now)})


def put_off(schedules: Record, name: str, at: float) -> Record:
    """The schedules with this one late, or to be fired again."""
    return schedules.with_fields(**{name: schedules[name].with_fields(at=at, fired_at=0)})


def _create(schedules: Record, parameters: Record, now: float) -> tuple[Record, Answer]:
    name, target = parameters["Name"], parameters["Target"]
    expression = _AT.fullmatch(parameters["ScheduleExpression"])
    if not (_NAME.fullmatch(name) and expression and len(target["Input"].encode()) <= LARGEST_INPUT):
        return schedules, Answer(error="ValidationException")
    before = schedules.get(name)
    if before is not None and not _is_gone(before, now):
        return schedules, Answer(error="ConflictException")
    at = datetime.fromisoformat(expression[1]).replace(tzinfo=UTC).timestamp()
    if at < now:
        return schedules, Answer(error="ValidationException")  # observed, not documented
    made = record({"name": name, "at": at, "target": target, "fired_at": 0})
    return schedules.with_fields(**{name: made}), Answer(freeze({"ScheduleArn": f"schedule:{name}"}))


def _look_up(schedules: Record, operation: str, name: str, now: float) -> tuple[Record, Answer]:
    schedule = schedules.get(name)
    if schedule is None or _is_gone(schedule, now):
        return schedules, Answer(error="ResourceNotFoundException")
    if operation == "get_schedule":
        return schedules, Answer(freeze({"Name": name, "Target": schedule["target"]}))
    return record({key: other for key, other in schedules.fields.items() if key != name}), Answer(freeze({}))


def _is_gone(schedule: Record, now: float) -> bool:
    return bool(schedule["fired_at"]) and now >= schedule["fired_at"] + LINGERS
