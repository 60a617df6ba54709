"""A drive: one thread's run of an execution, from its start or a redrive until the execution closes.

Shared by the Step Functions patches. Every execution is closed by `close`, so a closed status is final. A thread whose
drive has ended stops at its next step.
"""

import contextvars
import json
import threading
from dataclasses import dataclass, field
from typing import Any

from dev.emulator.engine.emulator import stepfunctions as sfn

LIMIT_BYTES = 256 * 1024  # "Step Functions: Service quotas": input or result of a task, state or execution
POLL_SECONDS = 0.05
lock = threading.RLock()
current: contextvars.ContextVar["Drive | None"] = contextvars.ContextVar("current_drive", default=None)
state_name: contextvars.ContextVar[str] = contextvars.ContextVar("state_name", default="")
previous_event: contextvars.ContextVar[int] = contextvars.ContextVar("previous_event", default=0)
_latest: dict[str, "Drive"] = {}


class Ending(Exception):
    """The execution of this thread was closed: end without Retry, Catch or another state."""


@dataclass
class Drive:
    """The progress of an execution. `position` is the state to redrive from, with its input and variables."""

    execution: dict[str, Any]
    definition: dict[str, Any]
    context: dict[str, Any]
    position: tuple[str, Any, dict[str, Any]]
    number: int = 0
    closed: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raise Ending if this drive has ended."""
        if self.closed.is_set():
            raise Ending

    def wait(self, seconds: float) -> None:
        """Sleep. Raises Ending as soon as the execution is closed."""
        if self.closed.wait(max(0.0, seconds)):
            raise Ending


def check() -> None:
    """Raise Ending in a thread whose drive has ended."""
    if drive := current.get():
        drive.check()


def note_parameters(given: Any) -> None:
    """Add the parameters of a task's call to its TaskScheduled event, the previous one of this thread."""
    drive, number = current.get(), previous_event.get()
    if drive is not None and number:
        event = drive.execution["events"][number - 1]
        if event["type"] == "TaskScheduled":
            event["taskScheduledEventDetails"]["parameters"] = json.dumps(given)


def note_submitted(service: str, action: str, answer: Any) -> None:
    """Add the TaskSubmitted event of a task that waits, with the answer to its call."""
    drive = current.get()
    if drive is not None:
        details = {"resourceType": service, "resource": action, "output": json.dumps(answer)}
        sfn._add_event(drive.execution, "TaskSubmitted", {"taskSubmittedEventDetails": details})


def latest(execution_arn: str) -> Drive | None:
    """The newest drive of an execution."""
    return _latest.get(execution_arn)


def begin(drive: Drive) -> None:
    """Register `drive` as the latest of its execution."""
    with lock:
        _latest[drive.execution["executionArn"]] = drive


def close(drive: Drive, status: str, details: dict[str, Any], **fields: Any) -> bool:
    """Close the execution unless it is closed already; `details` belongs to the history event."""
    execution = drive.execution
    with lock:
        if drive.closed.is_set() or execution["status"] != "RUNNING":
            return False
        execution.update(status=status, stopDate=sfn.now_iso(), **fields)
        word = {"SUCCEEDED": "Succeeded", "FAILED": "Failed", "TIMED_OUT": "TimedOut", "ABORTED": "Aborted"}[status]
        sfn._add_event(execution, f"Execution{word}", {f"execution{word}EventDetails": details})
        drive.closed.set()
    sfn._emit_execution_status_event(execution)
    return True


def stop(execution_arn: str, error: str, cause: str) -> None:
    """StopExecution, for callers inside the engine."""
    sfn._stop_execution({"executionArn": execution_arn, "error": error, "cause": cause})
