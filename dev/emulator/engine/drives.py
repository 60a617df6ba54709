"""A drive: one thread's way through an execution, from its start or from a redrive to the moment the execution closes.

Shared by the Step Functions patches. Whoever closes an execution does it through `close`, so a closed status is final,
and a thread of a drive that is over finds that out at its next step instead of acting for the execution.
"""

import contextvars
import threading
from dataclasses import dataclass, field
from typing import Any

from dev.emulator.engine.emulator import stepfunctions as sfn

LIMIT_BYTES = 256 * 1024  # "Step Functions: Service quotas": input or result of a task, state or execution
lock = threading.RLock()
current: contextvars.ContextVar["Drive | None"] = contextvars.ContextVar("current_drive", default=None)
state_name: contextvars.ContextVar[str] = contextvars.ContextVar("state_name", default="")
_latest: dict[str, "Drive"] = {}


class ExecutionClosed(Exception):
    """The execution of this thread has been closed: end without Retry, Catch or another state."""


@dataclass
class Drive:
    """Where an execution stands. `position` is the state to redrive from, with its input and variables."""

    execution: dict[str, Any]
    definition: dict[str, Any]
    context: dict[str, Any]
    position: tuple[str, Any, dict[str, Any]]
    number: int = 0
    closed: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raise ExecutionClosed if this drive is over."""
        if self.closed.is_set():
            raise ExecutionClosed

    def wait(self, seconds: float) -> None:
        """Sleep, but no longer than the execution lives."""
        if self.closed.wait(max(0.0, seconds)):
            raise ExecutionClosed


def check() -> None:
    """Raise ExecutionClosed in a thread whose drive is over."""
    drive = current.get()
    if drive is not None:
        drive.check()


def latest(execution_arn: str) -> Drive | None:
    """The newest drive of an execution."""
    return _latest.get(execution_arn)


def begin(drive: Drive) -> None:
    """Make `drive` the one that may close its execution."""
    with lock:
        _latest[drive.execution["executionArn"]] = drive


def close(drive: Drive, status: str, details: dict[str, Any], **fields: Any) -> bool:
    """Close the execution unless something else did first; `details` is the history event's."""
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
    """What StopExecution does, for whoever acts inside the engine."""
    sfn._stop_execution({"executionArn": execution_arn, "error": error, "cause": cause})
