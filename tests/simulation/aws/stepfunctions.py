"""The executions of one state machine as a pure function. An actor (workflow.py) runs each execution of the workflow.

A world has one set of executions for the workflow and one for the state machine that its requests run.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.frozen import Moment, Record, freeze, record
from tests.simulation.transcript import Answer, Question

OPEN = ("RUNNING", "PENDING_REDRIVE")
WORKFLOW = "arn:stateMachine:workflow"
CHILD = "arn:aws:states:us-east-1:123456789012:stateMachine:child"
_EMPTY = record({})


def executions() -> Record:
    """No executions: name -> execution."""
    return _EMPTY


def perform(executions: Record, operation: str, parameters: Record, now: float) -> tuple[Record, Answer]:
    """One operation; `now` in seconds since the epoch."""
    return _OPERATIONS[operation](executions, parameters, now)  # type: ignore[no-any-return]


def service_of(question: Question) -> str:
    """The world's service that answers: another one for children and for task tokens."""
    if question.service != "stepfunctions":
        return question.service
    if question.operation.startswith("send_task_"):
        return "tasks"
    arn = question.parameters.get("executionArn") or question.parameters["stateMachineArn"]
    return "children" if arn.startswith((CHILD, execution_arn(CHILD, ""))) else "stepfunctions"


def execution_arn(machine: str, name: str) -> str:
    """The ARN of an execution."""
    return f"{machine.replace(':stateMachine:', ':execution:')}:{name}"


def close(executions: Record, name: str, status: str, now: float, error: str = "", cause: str = "") -> Record:
    """The executions after this one has ended."""
    closed = executions[name].with_fields(status=status, stopped=now, error=error, cause=cause)
    return executions.with_fields(**{name: closed})


def described(executions: Record, arn: str) -> Record:
    """The description of an execution."""
    name = _name_of(arn)
    described: Record = freeze(_listed(arn, executions[name]) | _details(executions[name]))
    return described


def is_open(executions: Record, name: str) -> bool:
    """Whether an execution of this name is running."""
    return name in executions and executions[name]["status"] in OPEN


def _start(executions: Record, parameters: Record, now: float) -> tuple[Record, Answer]:
    name, given = parameters["name"], parameters["input"]
    arn = execution_arn(parameters["stateMachineArn"], name)
    if name in executions:
        # Name and input of a running execution return it; otherwise it is a conflict (API Reference, StartExecution).
        existing = executions[name]
        if existing["status"] in OPEN and existing["input"] == given:
            return executions, _started(arn, existing["started"])
        return executions, Answer(error="ExecutionAlreadyExists")
    begun = {"status": "RUNNING", "input": given, "started": now, "stopped": 0, "error": "", "cause": "", "redrives": 0}
    return executions.with_fields(**{name: record(begun)}), _started(arn, now)


def _started(arn: str, at: float) -> Answer:
    return Answer(freeze({"executionArn": arn, "startDate": Moment(at)}))


def _stop(executions: Record, parameters: Record, now: float) -> tuple[Record, Answer]:
    name = _name_of(parameters["executionArn"])
    if name not in executions:
        return executions, Answer(error="ExecutionDoesNotExist")
    if executions[name]["status"] in OPEN:
        executions = close(
            executions, name, "ABORTED", now, parameters.get("error") or "", parameters.get("cause") or ""
        )
    return executions, Answer(freeze({"stopDate": Moment(executions[name]["stopped"])}))


def _redrive(executions: Record, parameters: Record, now: float) -> tuple[Record, Answer]:
    name = _name_of(parameters["executionArn"])
    if name not in executions:
        return executions, Answer(error="ExecutionDoesNotExist")
    existing = executions[name]
    if existing["status"] in (*OPEN, "SUCCEEDED"):
        return executions, Answer(error="ExecutionNotRedrivable")
    again = existing.with_fields(status="RUNNING", stopped=0, error="", cause="", redrives=existing["redrives"] + 1)
    return executions.with_fields(**{name: again}), Answer(freeze({"redriveDate": Moment(now)}))


def _describe(executions: Record, parameters: Record, now: float) -> tuple[Record, Answer]:
    name = _name_of(parameters["executionArn"])
    if name not in executions:
        return executions, Answer(error="ExecutionDoesNotExist")
    return executions, Answer(described(executions, parameters["executionArn"]))


def _list(executions: Record, parameters: Record, now: float) -> tuple[Record, Answer]:
    """The newest first: running ones by their start, others by their end (API Reference, ListExecutions)."""
    wanted = [
        _listed(execution_arn(parameters["stateMachineArn"], name), execution)
        for name, execution in executions.fields.items()
        if execution["status"] == parameters.get("statusFilter", execution["status"])
        and parameters.get("redriveFilter") in (None, "REDRIVEN" if execution["redrives"] else "NOT_REDRIVEN")
    ]
    wanted.sort(key=lambda execution: execution.get("stopDate", execution["startDate"]), reverse=True)
    return executions, Answer(freeze({"executions": wanted}))


def _listed(arn: str, execution: Record) -> dict[str, Any]:
    entry: dict[str, Any] = {"executionArn": arn, "name": _name_of(arn), "status": execution["status"]}
    entry |= {"startDate": Moment(execution["started"]), "redriveCount": execution["redrives"]}
    return entry | ({} if execution["status"] in OPEN else {"stopDate": Moment(execution["stopped"])})


def _details(execution: Record) -> dict[str, Any]:
    output = execution.get("output", "{}") if execution["status"] == "SUCCEEDED" else None
    shown = {name: execution[name] for name in ("error", "cause") if execution[name]}
    return {"input": execution["input"]} | shown | ({} if output is None else {"output": output})


def _name_of(arn: str) -> str:
    return arn.rpartition(":")[2]


_OPERATIONS: dict[str, Any] = {
    "start_execution": _start,
    "stop_execution": _stop,
    "redrive_execution": _redrive,
    "describe_execution": _describe,
    "list_executions": _list,
}
