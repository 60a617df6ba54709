"""The task resources `states:startExecution`, `.sync` and `.sync:2`: an execution starts another one, and waits for it.

AWS: "Start a new AWS Step Functions state machine from a running execution" (.sync:2 returns JSON, .sync a string);
"Discover service integration patterns in Step Functions" (Run a Job: if the task is aborted because its execution is
stopped, Step Functions makes a best-effort attempt to stop the child by StopExecution; a timeout of a task or an
execution is not mentioned, so those children continue here); "Handling errors in Step Functions workflows"
(States.TaskFailed). The cause of a failed task is the description of the child: keys sorted, dates as epoch
milliseconds. Refusals are `StepFunctions.<code>Exception`. A start's answer contains that of the HTTP call: recorded
in tests/conformance/test_stepfunctions.py.
MiniStack runs a waiting task's child in the parent's thread, without status events, and it cannot be stopped alone.
"""

import contextvars
import json
from typing import Any

from dev.emulator.engine import drives
from dev.emulator.engine.emulator import replace
from dev.emulator.engine.emulator import stepfunctions as sfn
from dev.emulator.engine.patches.stepfunctions_optimized import sdk_metadata
from dev.emulator.engine.patches.stepfunctions_tasks import abandoned, answer_of, wait_for_job

_TEXTS = {"Input", "Output"}


def apply() -> None:
    """Replace both functions."""
    replace(sfn, "_invoke_nested_start_execution", lambda _original: start_child)
    replace(sfn, "_invoke_nested_start_execution_sync", lambda _original: run_child)


def start_child(_resource: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Start the child, and return without waiting."""
    given = arguments.get("Input")
    text = given if isinstance(given, str) else json.dumps({} if given is None else given, separators=(",", ":"))
    request = {"stateMachineArn": arguments.get("StateMachineArn", ""), "input": text}
    request |= {"name": arguments["Name"]} if arguments.get("Name") else {}
    answer = answer_of(
        contextvars.copy_context().run(_start, request),
        "AWSStepFunctions",
        lambda code: f"StepFunctions.{code.removesuffix('Exception')}Exception",
    )
    started = {"ExecutionArn": answer["executionArn"], "StartDate": sfn._iso_to_epoch_ms(answer["startDate"])}
    return started | sdk_metadata()


def _start(request: dict[str, Any]) -> Any:
    abandoned.set(None)  # the child's thread copies this context: the timeout of the parent's task is not the child's
    return sfn._start_execution(request)


def run_child(resource: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Start the child and wait for its end."""
    submitted = start_child(resource, arguments)
    drives.note_submitted("states", resource.rpartition(":states:")[2], submitted)
    child = sfn._executions[submitted["ExecutionArn"]]
    wait_for_job(lambda: child["status"] == "RUNNING", lambda: drives.stop(child["executionArn"], "", ""))
    shown = as_step_functions_shows_it(json.loads(sfn._describe_execution({"executionArn": child["executionArn"]})[2]))
    if shown["Status"] != "SUCCEEDED":
        raise sfn._ExecutionError("States.TaskFailed", json.dumps(shown, sort_keys=True, separators=(",", ":")))
    if resource.endswith(":2"):
        shown |= {name: json.loads(shown[name]) for name in _TEXTS}
    return shown


def as_step_functions_shows_it(description: dict[str, Any]) -> dict[str, Any]:
    """The child's description in the names and the dates of a task's result."""
    known = {name: value for name, value in description.items() if value is not None}
    if "output" not in known:
        known.pop("outputDetails", None)
    return {name[0].upper() + name[1:]: _shown(name, value) for name, value in known.items()}


def _shown(name: str, value: Any) -> Any:
    if name.endswith("Date"):
        return sfn._iso_to_epoch_ms(value)
    return {"Included": value["included"]} if name.endswith("Details") else value
