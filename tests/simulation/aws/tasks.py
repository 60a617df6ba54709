"""Tasks that wait for a token, as a pure function of Step Functions' answers: token -> task."""

from __future__ import annotations

from typing import Any

from tests.simulation.frozen import Record, freeze, record
from tests.simulation.transcript import Answer

_WAITS = record({"status": "WAITS", "beats": 0, "answer": ""})


def tasks(*tokens: str) -> Record:
    """Tasks that wait with these tokens."""
    return record(dict.fromkeys(tokens, _WAITS))


def end(tasks: Record, token: str) -> Record:
    """The tasks after this one has timed out, or its execution was stopped. An answered task stays answered."""
    if tasks[token]["status"] != "WAITS":
        return tasks
    return tasks.with_fields(**{token: tasks[token].with_fields(status="ENDED")})


def perform(tasks: Record, operation: str, parameters: Record, _now: float) -> tuple[Record, Answer]:
    """One operation. At most one answer counts (API Reference, SendTaskSuccess: TaskTimedOut)."""
    token = parameters["taskToken"]
    if token not in tasks:
        return tasks, Answer(error="TaskDoesNotExist")
    task = tasks[token]
    if task["status"] != "WAITS":
        return tasks, Answer(error="TaskTimedOut")
    if operation == "send_task_heartbeat":
        changed = task.with_fields(beats=task["beats"] + 1)
    else:
        status = {"send_task_success": "SUCCEEDED", "send_task_failure": "FAILED"}[operation]
        changed = task.with_fields(status=status, answer=_answer(parameters))
    return tasks.with_fields(**{token: changed}), Answer(freeze({}))


def _answer(parameters: Record) -> Any:
    return parameters.get("output") or parameters.get("error") or ""
