"""RedriveExecution.

AWS: "Restarting state machine executions with redrive in Step Functions": a failed, aborted or timed-out execution
continues from its unsuccessful state, with that state's input and variables and the definition of the first attempt;
its timeout starts again; ExecutionRedriven is added to the history. "Accessing execution data from the Context object":
RedriveCount, RedriveTime.
MiniStack does not have the action. Simpler here than on AWS: a Parallel or Map state is run again as a whole.
"""

import contextvars
import json
import threading
from collections.abc import Callable
from typing import Any

from dev.emulator.engine import drives
from dev.emulator.engine.drives import Drive
from dev.emulator.engine.emulator import responses, wrap
from dev.emulator.engine.emulator import stepfunctions as sfn
from dev.emulator.engine.patches.stepfunctions_drives import run_drive

REDRIVABLE = ("FAILED", "ABORTED", "TIMED_OUT")


def apply() -> None:
    """Add the action, and its fields to DescribeExecution."""
    wrap(sfn, "handle_request", _handle_request)
    wrap(sfn, "_describe_execution", _describe_execution)


async def _handle_request(
    original: Callable[..., Any], method: Any, path: Any, headers: Any, body: Any, query: Any
) -> Any:
    if headers.get("x-amz-target", "").endswith(".RedriveExecution"):
        return sfn._finalize_response(redrive_execution(json.loads(body)))
    return await original(method, path, headers, body, query)


def redrive_execution(data: dict[str, Any]) -> Any:
    """RedriveExecution."""
    arn = data.get("executionArn", "")
    earlier = drives.latest(arn)
    if arn not in sfn._executions or earlier is None:
        message = f"Execution Does Not Exist: '{arn}'"
        return responses.error_response_json("ExecutionDoesNotExist", message, 400)
    execution = earlier.execution
    with drives.lock:
        if execution["status"] not in REDRIVABLE:
            message = f"Execution is {execution['status']} and cannot be redriven"
            return responses.error_response_json("ExecutionNotRedrivable", message, 400)
        now = sfn.now_iso()
        number = earlier.number + 1
        # A new context, because a thread of the earlier drive may still hold the old one.
        fields = {**earlier.context["Execution"], "RedriveCount": number, "RedriveTime": now}
        context = {**earlier.context, "Execution": fields}
        drive = Drive(execution, earlier.definition, context, earlier.position, number)
        execution.update(status="RUNNING", stopDate=None, output=None, error=None, cause=None)
        execution.update(redriveCount=number, redriveDate=now)
        sfn._add_event(execution, "ExecutionRedriven", {"executionRedrivenEventDetails": {"redriveCount": number}})
        drives.begin(drive)
    sfn._emit_execution_status_event(execution)
    copied = contextvars.copy_context()
    threading.Thread(target=copied.run, args=(run_drive, drive), daemon=True, name="redrive").start()
    return responses.json_response({"redriveDate": now})


def _describe_execution(original: Callable[[Any], Any], data: dict[str, Any]) -> Any:
    answer = original(data)
    if answer[0] >= 400:
        return answer
    execution = sfn._executions[data["executionArn"]]
    redrivable = execution["status"] in REDRIVABLE
    fields = json.loads(answer[2])
    fields |= {"redriveCount": execution.get("redriveCount", 0)}
    fields |= {"redriveStatus": "REDRIVABLE" if redrivable else "NOT_REDRIVABLE"}
    if not redrivable:
        fields |= {"redriveStatusReason": f"Execution is {execution['status']} and cannot be redriven"}
    if execution.get("redriveDate"):
        fields |= {"redriveDate": execution["redriveDate"]}
    return responses.json_response(fields)
