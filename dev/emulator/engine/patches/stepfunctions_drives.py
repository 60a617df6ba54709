"""An execution's end is final, its TimeoutSeconds applies, and its context object contains the redrives.

AWS: "Step Functions API Reference: StopExecution"; "State machine structure in Amazon States Language"
(TimeoutSeconds); "Accessing execution data from the Context object" (Execution.RedriveCount, Execution.RedriveTime,
Execution.RoleArn); "Step Functions API Reference: HistoryEvent" (previousEventId, which links the events of one
iteration of a Map). A timeout has no cause, and that of an execution no error either: recorded in
tests/conformance (test_stepfunctions.py, test_executions.py).
In MiniStack a state in flight continues after an abort (its retries, its next call, its late events) and overwrites
ABORTED with FAILED. MiniStack ignores the machine's TimeoutSeconds, and has no redrive fields and no previousEventId.
It has no TaskTimedOut event.
"""

import contextvars
import json
import threading
from collections.abc import Callable
from typing import Any

from dev.emulator.engine import drives
from dev.emulator.engine.drives import Drive, ExecutionClosed
from dev.emulator.engine.emulator import replace, wrap
from dev.emulator.engine.emulator import stepfunctions as sfn
from dev.emulator.engine.states import walk


def apply() -> None:
    """Replace the loop over the states, and the functions that close an execution."""
    replace(sfn, "_run_execution", lambda _original: run_execution)
    wrap(sfn, "_stop_execution", _stop_execution)
    wrap(sfn, "_execute_task", _execute_task)
    wrap(sfn, "_add_event", _add_event)
    wrap(sfn, "_scaled_sleep", _scaled_sleep)


def run_execution(execution_arn: str) -> None:
    """Run the first drive of an execution, in its own thread."""
    execution = sfn._executions.get(execution_arn)
    if execution is None:
        return
    machine = sfn._state_machines[execution["stateMachineArn"]]
    definition = json.loads(machine["definition"])
    given = json.loads(execution["input"])
    context = {
        "QueryLanguage": definition.get("QueryLanguage", "JSONPath"),
        "Execution": {
            "Id": execution_arn,
            "Input": given,
            "Name": execution["name"],
            "RoleArn": machine["roleArn"],
            "StartTime": execution["startDate"],
            "RedriveCount": 0,
        },
        "StateMachine": {"Id": execution["stateMachineArn"], "Name": machine["name"]},
        "variables": {},
    }
    run_drive(Drive(execution, definition, context, (definition["StartAt"], given, {})))


def run_drive(drive: Drive) -> None:
    """Run the states until the execution is closed."""
    drives.begin(drive)
    drives.current.set(drive)
    drives.previous_event.set(0)
    limit = drive.definition.get("TimeoutSeconds")
    timer = threading.Timer(float(limit), contextvars.copy_context().run, (_time_out, drive)) if limit else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        output = json.dumps(walk(drive))
        drives.close(drive, "SUCCEEDED", {"output": output}, output=output)
    except ExecutionClosed:
        pass
    except sfn._ExecutionError as error:
        _fail(drive, error.error, error.cause)
    except Exception as error:
        sfn.logger.exception("Unexpected error in execution %s", drive.execution["executionArn"])
        _fail(drive, "States.Runtime", str(error))
    finally:
        if timer is not None:
            timer.cancel()


def _fail(drive: Drive, error: str, cause: str) -> None:
    fields = {"error": error} | ({"cause": cause} if cause else {})
    drives.close(drive, "FAILED", fields, **fields)


def _time_out(drive: Drive) -> None:
    drives.close(drive, "TIMED_OUT", {})


def _stop_execution(original: Callable[[Any], Any], data: dict[str, Any]) -> Any:
    drive = drives.latest(data.get("executionArn", ""))
    with drives.lock:  # the original's check of the status and the closing are one step
        answer = original(data)
        if drive is not None and drive.execution["status"] == "ABORTED":
            drive.closed.set()
    return answer


def _execute_task(original: Callable[..., Any], state: Any, raw_input: Any, execution: Any, context: Any) -> Any:
    token = drives.state_name.set(context["State"]["Name"])
    try:
        return original(state, raw_input, execution, context)
    finally:
        drives.state_name.reset(token)


def _add_event(original: Callable[..., Any], execution: dict[str, Any], kind: str, details: Any = None) -> Any:
    if kind == "TaskFailed" and details["taskFailedEventDetails"]["error"] == "States.Timeout":
        kind, details = "TaskTimedOut", {"taskTimedOutEventDetails": _without_empty(details["taskFailedEventDetails"])}
    with drives.lock:  # AWS's history contains no late event of a branch after the end
        if kind.startswith("Execution") or execution["status"] == "RUNNING":
            event = original(execution, kind, details)
            event["previousEventId"] = drives.previous_event.get()
            drives.previous_event.set(event["id"])
            return event
    return None


def _without_empty(details: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in details.items() if value}


def _scaled_sleep(original: Callable[[float], None], seconds: float) -> None:
    drive = drives.current.get()
    if drive is None:
        original(seconds)
    else:
        drive.wait(seconds * sfn._SFN_WAIT_SCALE)
