"""Executions of Step Functions: starts, ends, redrives and lists."""

import contextvars
import copy
import json
import threading
from collections.abc import Callable
from typing import Any

from dev.emulator.engine import drives
from dev.emulator.engine.drives import Drive, Ending
from dev.emulator.engine.emulator import eventbridge, patch, put, refused, responses, setting, wrap
from dev.emulator.engine.emulator import stepfunctions as sfn

REDRIVABLE = ("FAILED", "ABORTED", "TIMED_OUT")


@patch
def stepfunctions_start() -> None:
    """StartExecution is idempotent while the execution of that name runs with the same input.

    AWS: "Step Functions API Reference: StartExecution": the same name and input as a running execution returns the
    original request's result; a different input, or an execution closed within 90 days, is ExecutionAlreadyExists.
    MiniStack refuses every second start of a name.
    Shown by the row start_is_idempotent of tests/facts.
    """
    wrap(sfn, "_start_execution", _start_execution)


def _start_execution(original: Callable[[Any], Any], data: dict[str, Any]) -> Any:
    machine = sfn._resolve_state_machine_arn(data.get("stateMachineArn", "").split("#")[0])
    if machine and data.get("name"):
        earlier = sfn._executions.get(f"{machine.replace(':stateMachine:', ':execution:')}:{data['name']}")
        if earlier and earlier["status"] == "RUNNING" and earlier["input"] == data.get("input", "{}"):
            return responses.json_response({"executionArn": earlier["executionArn"], "startDate": earlier["startDate"]})
    return original(data)


@patch
def stepfunctions_drives() -> None:
    """An execution's end is final, its TimeoutSeconds applies, and its context object contains the redrives.

    AWS: "Step Functions API Reference: StopExecution"; "State machine structure in Amazon States Language"
    (TimeoutSeconds); "Accessing execution data from the Context object" (Execution.RedriveCount,
    Execution.RedriveTime, Execution.RoleArn); "Step Functions API Reference: HistoryEvent" (previousEventId, which
    links the events of one iteration of a Map). A timeout has no cause, and that of an execution no error either
    (recorded).
    In MiniStack a state in flight continues after an abort (its retries, its next call, its late events) and
    overwrites ABORTED with FAILED. MiniStack ignores the machine's TimeoutSeconds, and has no redrive fields, no
    previousEventId and no TaskTimedOut event.
    Shown by the rows timeout_has_no_error, context_object, status_events_of_all_ends,
    task_timeout_fails_without_cause, one_answer_counts of tests/facts.
    """
    put(sfn, "_run_execution", _run_execution)
    wrap(sfn, "_stop_execution", _stop_execution)
    wrap(sfn, "_execute_task", _execute_task)
    wrap(sfn, "_add_event", _add_event)
    wrap(sfn, "_scaled_sleep", _scaled_sleep)


def _run_execution(execution_arn: str) -> None:
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
    _run_drive(Drive(execution, definition, context, (definition["StartAt"], given, {})))


def _run_drive(drive: Drive) -> None:
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
        output = json.dumps(_walk(drive))
        drives.close(drive, "SUCCEEDED", {"output": output}, output=output)
    except Ending:
        pass
    except sfn._ExecutionError as error:
        _fail(drive, error.error, error.cause)
    except Exception as error:
        sfn.logger.exception("Unexpected error in execution %s", drive.execution["executionArn"])
        _fail(drive, "States.Runtime", str(error))
    finally:
        if timer is not None:
            timer.cancel()


def _walk(drive: Drive) -> Any:
    """Run from the drive's position to an end state; return the output. Raises Ending if closed before."""
    context = drive.context
    name: str | None
    name, data, variables = drive.position
    context["variables"] = copy.deepcopy(variables)
    resumed = drive.number > 0  # a redriven state was entered before
    while name is not None:
        state = drive.definition["States"].get(name)
        if state is None:
            raise sfn._ExecutionError("States.Runtime", f"State '{name}' not found in definition")
        with drives.lock:
            drive.check()
            drive.position = (name, data, copy.deepcopy(context["variables"]))
        context["State"] = {"Name": name, "EnteredTime": sfn.now_iso(), "RetryCount": 0}
        kind = state["Type"]
        if not resumed:
            entered = {"name": name, "input": json.dumps(data)}
            sfn._add_event(drive.execution, f"{kind}StateEntered", {"stateEnteredEventDetails": entered})
        resumed = False
        data, following = _step(kind, state, data, drive)
        drive.check()
        exited = {"name": name, "output": json.dumps(data)}
        sfn._add_event(drive.execution, f"{kind}StateExited", {"stateExitedEventDetails": exited})
        name = following
    return data


def _step(kind: str, state: dict[str, Any], data: Any, drive: Drive) -> tuple[Any, str | None]:
    context = drive.context
    if kind == "Fail":
        raise sfn._ExecutionError(*sfn._fail_state_error(state, data, context))
    if kind == "Succeed":
        if sfn._state_query_language(state, context) == "JSONata":
            return sfn._apply_jsonata_output(state, data, context, default=data), None
        return sfn._apply_output_path(state, sfn._apply_input_path(state, data, context), context), None
    following: tuple[Any, str | None]
    if kind in ("Task", "Parallel", "Map"):
        following = getattr(sfn, f"_execute_{kind.lower()}")(state, data, drive.execution, context)
    elif kind in ("Pass", "Choice", "Wait"):
        following = getattr(sfn, f"_execute_{kind.lower()}")(state, data, context)
    else:
        raise sfn._ExecutionError("States.Runtime", f"Unknown state type: {kind}")
    return following


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
    with setting(drives.state_name, context["State"]["Name"]):
        return original(state, raw_input, execution, context)


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


@patch
def stepfunctions_redrive() -> None:
    """RedriveExecution.

    AWS: "Restarting state machine executions with redrive in Step Functions": a failed, aborted or timed-out execution
    continues from its unsuccessful state, with that state's input and variables and the definition of the first
    attempt; its timeout starts again; ExecutionRedriven is added to the history. "Accessing execution data from the
    Context object": RedriveCount, RedriveTime. "Automating Step Functions event delivery with EventBridge" and "Step
    Functions API Reference: ListExecutions": the status event and a list's entry have redriveCount and redriveDate.
    MiniStack does not have the action. Simpler here than on AWS: a Parallel or Map state is run again as a whole.
    Shown by the rows redrivable_ends, lists_are_ordered, missing_execution of tests/facts.
    """
    wrap(sfn, "handle_request", _handle_request)
    wrap(sfn, "_describe_execution", _describe_execution)
    wrap(sfn, "_list_executions", _list_executions)
    wrap(eventbridge, "_put_events", _put_events)


async def _handle_request(
    original: Callable[..., Any], method: Any, path: Any, headers: Any, body: Any, query: Any
) -> Any:
    if headers.get("x-amz-target", "").endswith(".RedriveExecution"):
        return sfn._finalize_response(_redrive_execution(json.loads(body)))
    return await original(method, path, headers, body, query)


def _redrive_execution(data: dict[str, Any]) -> Any:
    """RedriveExecution."""
    arn = data.get("executionArn", "")
    earlier = drives.latest(arn)
    if arn not in sfn._executions or earlier is None:
        return refused("ExecutionDoesNotExist", f"Execution Does Not Exist: '{arn}'")
    execution = earlier.execution
    with drives.lock:
        if execution["status"] not in REDRIVABLE:
            return refused("ExecutionNotRedrivable", f"Execution is {execution['status']} and cannot be redriven")
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
    threading.Thread(target=copied.run, args=(_run_drive, drive), daemon=True, name="redrive").start()
    return responses.json_response({"redriveDate": now})


def _put_events(original: Callable[..., Any], data: dict[str, Any], *, allow_aws_source: bool = False) -> Any:
    """PutEvents. MiniStack's services, and no others, may send events of AWS."""
    entries = data.get("Entries", [])
    if allow_aws_source:
        entries = [_with_redrives(entry) for entry in entries]
    return original({**data, "Entries": entries}, allow_aws_source=allow_aws_source)


def _with_redrives(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry with the redrives of its execution, if it is a status event."""
    if entry.get("Source") != "aws.states":
        return entry
    detail = json.loads(entry["Detail"])
    execution = sfn._executions[detail["executionArn"]]
    if count := execution.get("redriveCount", 0):
        detail |= {"redriveCount": count, "redriveDate": sfn._iso_to_epoch_ms(execution["redriveDate"])}
    return {**entry, "Detail": json.dumps(detail)}


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


def _list_executions(original: Callable[[Any], Any], data: dict[str, Any]) -> Any:
    answer = original(data)
    if answer[0] >= 400:
        return answer
    listed = json.loads(answer[2])
    for entry in listed["executions"]:
        execution = sfn._executions[entry["executionArn"]]
        entry["redriveCount"] = execution.get("redriveCount", 0)
        if entry["redriveCount"]:
            entry["redriveDate"] = execution["redriveDate"]
    return responses.json_response(listed)
