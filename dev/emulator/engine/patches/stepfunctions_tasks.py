"""Tasks of Step Functions: retries, timeouts and limits."""

import contextvars
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from dev.emulator.engine import drives
from dev.emulator.engine.drives import Ending
from dev.emulator.engine.emulator import patch, put, wrap
from dev.emulator.engine.emulator import stepfunctions as sfn

abandoned: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar("abandoned", default=None)
leave_running: set[str] = set()  # executions whose abort does not stop their jobs (see dev.emulator.faults)


@patch
def stepfunctions_tasks() -> None:
    """A task's Retry, timeout and result limit follow the States Language.

     AWS: "Handling errors in Step Functions workflows" (MaxDelaySeconds; JitterStrategy FULL; the data limit), "Task
     workflow state" (TimeoutSeconds and HeartbeatSeconds may be JSONata expressions), "Service quotas" (256 KiB),
     "Step Functions API Reference: TaskScheduledEventDetails" (parameters). The first of these pages states that
     States.ALL does not match States.DataLimitExceeded. It does in recorded executions
    , and here.
     MiniStack fails on a JSONata timeout, waits without jitter and at most 60 s with any MaxDelaySeconds, and has no
     limit. It also retries and calls after the execution was stopped.
     Shown by the rows task_timeout_is_caught_without_cause, timeouts_of_a_task, data_limit_of_a_child,
     catches_of_the_data_limit of tests/facts.
    """
    wrap(sfn, "_execute_task", _execute_task)
    wrap(sfn, "_invoke_resource", _invoke_resource)
    put(sfn, "_invoke_resource_with_timeout", _invoke_with_timeout)
    wrap(sfn, "_find_matching_retrier", _find_matching_retrier)


def _execute_task(original: Callable[..., Any], state: Any, raw_input: Any, execution: Any, context: Any) -> Any:
    for field in ("TimeoutSeconds", "HeartbeatSeconds"):
        if isinstance(state.get(field), str):
            state = {**state, field: sfn._jsonata_state_field(state, field, "number", raw_input, context)}
    return original(state, raw_input, execution, context)


def _invoke_resource(original: Callable[..., Any], resource: str, given: Any) -> Any:
    drives.check()
    drives.note_parameters(given)
    result = original(resource, given)
    drives.check()
    if len(json.dumps(result, ensure_ascii=False).encode()) > drives.LIMIT_BYTES:
        cause = (
            f"The state/task '{resource}' returned a result with a size exceeding the maximum number of bytes "
            "service limit."
        )
        raise sfn._ExecutionError("States.DataLimitExceeded", cause)
    return result


def _invoke_with_timeout(resource: str, given: Any, seconds: float) -> Any:
    """Call in a separate thread, and raise States.Timeout after `seconds`.

    The call continues: Step Functions documents cancelling a job for a stopped execution, not for a task that timed
    out. The event in `abandoned` ends a thread that only waits.
    """
    timed_out = threading.Event()
    context = contextvars.copy_context()
    context.run(abandoned.set, timed_out)
    outcome: list[tuple[Any, BaseException | None]] = []

    def call() -> None:
        try:
            outcome.append((context.run(sfn._invoke_resource, resource, given), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=call, daemon=True, name="task")
    thread.start()
    thread.join(seconds)
    if not outcome:
        timed_out.set()
        drives.check()
        raise sfn._ExecutionError("States.Timeout", "")
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


def wait_for_job(is_running: Callable[[], bool], stop: Callable[[], Any]) -> None:
    """Wait for the end of the job that a task with `.sync` has started. Raises Ending if the task ends first.

    An aborted task stops it (AWS: best effort), except in the executions of `leave_running`; a timeout does not.
    """
    timed_out, drive = abandoned.get(), drives.current.get()
    while is_running():
        if timed_out is not None and timed_out.is_set():
            raise Ending  # the task timed out, so this thread's result is not used
        if drive is not None and drive.closed.is_set():
            if drive.execution["status"] == "ABORTED" and drive.execution["name"] not in leave_running:
                stop()
            raise Ending
        time.sleep(drives.POLL_SECONDS)


def _delay(retrier: Mapping[str, Any], before: int) -> float:
    """Seconds until the next retry, after `before` retries by this retrier."""
    seconds: float = retrier.get("IntervalSeconds", 1) * retrier.get("BackoffRate", 2.0) ** before
    seconds = min(seconds, retrier.get("MaxDelaySeconds", seconds))
    return seconds * secrets.randbelow(10_001) / 10_000 if retrier.get("JitterStrategy") == "FULL" else seconds


def _find_matching_retrier(
    original: Callable[..., Any], retriers: list[dict[str, Any]], error: str, counts: dict[int, int]
) -> Any:
    drives.check()
    retrier, index = original(retriers, error, counts)
    drive = drives.current.get()
    if retrier is None or drive is None:
        return retrier, index
    drive.wait(_delay(retrier, counts.get(index, 0)) * sfn._SFN_WAIT_SCALE)
    return {**retrier, "IntervalSeconds": 0}, index  # already waited: MiniStack's own wait is at most 60 s
