"""Tasks that wait for a task token, and the actions that answer them."""

import base64
import json
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from dev.emulator.engine import drives
from dev.emulator.engine.emulator import patch, put, refused, wrap
from dev.emulator.engine.emulator import stepfunctions as sfn

PREFIX = "AQCwAAAAKgAAAAMAAAAA"  # every token of AWS starts alike
POLL_SECONDS = 0.1  # an answer ends the wait immediately, a stop of the execution after this time
LENGTHS = {"output": drives.LIMIT_BYTES, "error": 256, "cause": 32768}
_TOKEN_BYTES = 480
_lock = threading.Lock()  # an answer and the end of the wait are one order


@patch
def stepfunctions_tokens() -> None:
    """A task waits for one answer with its token.

    AWS: "Discover service integration patterns in Step Functions" (Wait for a callback with the task token);
    "Step Functions API Reference: SendTaskSuccess", "SendTaskFailure" and "SendTaskHeartbeat" (InvalidToken,
    InvalidOutput, TaskDoesNotExist; TaskTimedOut: the token has expired or its task is closed; the lengths of output,
    error and cause); "Task workflow state" (TimeoutSeconds, and HeartbeatSeconds, whose end is States.Timeout too).
    Each attempt of a task has its own token, of several hundred characters of base64. The token is checked before the
    output (recorded).
    MiniStack accepts every number of answers, keeps one token for all attempts, does not know HeartbeatSeconds, waits
    on after the execution was stopped, and answers TaskDoesNotExist for any other token.
    Shown by the rows one_answer_counts, refused_answers, token_is_checked_first, token_of_an_attempt,
    timeouts_of_a_task of tests/facts.
    """
    put(sfn, "_invoke_with_callback", _wait_for_answer)
    for name in ("_apply_jsonata_arguments", "_apply_parameters"):
        wrap(sfn, name, _with_new_token)
    for name in ("_send_task_success", "_send_task_failure", "_send_task_heartbeat"):
        wrap(sfn, name, _answer)


def _with_new_token(original: Callable[..., Any], state: Any, given: Any, context: Any = None) -> Any:
    if ".waitForTaskToken" in state.get("Resource", ""):
        token = PREFIX + base64.b64encode(secrets.token_bytes(_TOKEN_BYTES)).decode()
        context["Task"] = {"Token": token}
    return original(state, given, context)


def _wait_for_answer(resource: str, given: Any, token: str, state: dict[str, Any]) -> Any:
    drive = drives.current.get()
    task: dict[str, Any] = {"event": threading.Event(), "result": None, "error": None, "heartbeat": None}
    task |= {"drive": drive, "closed": False}
    sfn._task_tokens[token] = task
    began = time.monotonic()
    try:
        sent = sfn._invoke_resource(resource.replace(".waitForTaskToken", ""), given)
        *_, service, action = resource.split(":")
        drives.note_submitted(service, action, sent)
        _wait(task, began, state)
    finally:
        with _lock:
            task["closed"] = True
    if task["error"]:
        raise sfn._ExecutionError(task["error"]["Error"], task["error"]["Cause"])
    return json.loads(task["result"])


def _wait(task: dict[str, Any], began: float, state: dict[str, Any]) -> None:
    limit, silence = state.get("TimeoutSeconds"), state.get("HeartbeatSeconds")
    while not task["event"].wait(POLL_SECONDS):
        drives.check()
        now = time.monotonic()
        late = limit is not None and now - began >= limit
        silent = silence is not None and now - (task.get("beat") or began) >= silence
        if not (late or silent):
            continue
        with _lock:
            if not task["event"].is_set():
                task["closed"] = True
                raise sfn._ExecutionError("States.Timeout", "")


def _answer(original: Callable[[Any], Any], data: dict[str, Any]) -> Any:
    output = data.get("output")
    if output is not None and not isinstance(output, str):  # a task of the SDK integration may pass an object
        output = json.dumps(output, separators=(",", ":"))
        data = {**data, "output": output}
    for name, most in LENGTHS.items():
        if len((data.get(name) or "").encode()) > most:
            return refused("ValidationException", f"Value at '{name}' failed to satisfy constraint: length {most}")
    token = data.get("taskToken") or ""
    task = sfn._task_tokens.get(token)
    if task is None:
        if token.startswith(PREFIX):
            return refused("TaskDoesNotExist", "Task does not exist")
        return refused("InvalidToken", "Invalid Token: 'Invalid token'")
    if output is not None and not _is_json(output):
        return refused("InvalidOutput", "Invalid Output: 'Unable to parse output'")
    drive = task.get("drive")
    with _lock:
        has_ended = drive is not None and drive.closed.is_set()
        if task.get("closed") or task["event"].is_set() or has_ended:
            return refused("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'")
        task["beat"] = time.monotonic()
        return original(data)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
