"""Injected faults in a task's service call and in the API. Applied with a fault file only.

AWS warns of them: an answer that is lost after the effect ("Handling errors in Step Functions workflows"; "Making
retries safe with idempotent APIs", Builders' Library), a refusal, a stop in between. `dev.emulator.faults.Faults`
writes and explains the rules.
"""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from dev.emulator.engine import drives
from dev.emulator.engine.emulator import dynamodb, glue, replace, responses, sqs
from dev.emulator.engine.emulator import stepfunctions as sfn
from dev.emulator.engine.fault_rules import Rules
from dev.emulator.engine.patches.stepfunctions_tasks import abandoned, leave_running

START = "StartExecution"
STEP_SECONDS = 0.02


def apply() -> None:
    """Wrap both boundaries."""
    rules = Rules.from_environment()
    replace(sfn, "_invoke_resource", lambda original: _task_call(original, rules))
    for service in (sfn, dynamodb, sqs, glue):
        replace(service, "handle_request", lambda original: _request(original, rules))


def _task_call(original: Callable[..., Any], rules: Rules) -> Callable[..., Any]:
    def invoke(resource: str, given: Any) -> Any:
        drive = drives.current.get()
        if drive is None:
            return original(resource, given)
        drives.note_parameters(given)  # also of a call that a fault prevents
        execution = drive.execution
        rule = rules.take(execution["name"], drives.state_name.get())
        if rule is None:
            return original(resource, given)
        action = rule["action"]
        if action in ("delay", "hold"):
            deadline = time.monotonic() + float(rule.get("seconds") or 0)
            while rules.holds(rule["id"]) if action == "hold" else time.monotonic() < deadline:
                drive.wait(STEP_SECONDS)
                timed_out = abandoned.get()
                if timed_out is not None and timed_out.is_set():
                    raise drives.ExecutionClosed  # timed out while held: the call must not be made
            return original(resource, given)
        if action == "late":
            result = original(resource, given)
            drive.wait(float(rule["seconds"]))
            return result
        if action == "leave_running":
            leave_running.add(execution["name"])
            return original(resource, given)
        if action == "abort_before":
            drives.stop(execution["executionArn"], "Fault", f"stopped before the call of {drives.state_name.get()}")
            drive.check()
        if action in ("lose_answer", "abort_after"):
            # The lost answer of a job is that of its start, not of its end.
            original(resource.partition(".sync")[0], given)
        if action == "abort_after":
            drives.stop(execution["executionArn"], "Fault", f"stopped after the call of {drives.state_name.get()}")
            drive.check()
        cause = "" if rule["error"] == "States.Timeout" else f"fault {rule['id']}: {action}"
        raise sfn._ExecutionError(rule["error"], cause)

    return invoke


def _request(original: Callable[..., Any], rules: Rules) -> Callable[..., Any]:
    async def handle(method: Any, path: Any, headers: Any, body: Any, query: Any) -> Any:
        operation = headers.get("x-amz-target", "").rpartition(".")[2]
        execution = json.loads(body).get("name", "") if operation == START else ""
        rule = rules.take(execution, operation)
        if rule is None:
            return await original(method, path, headers, body, query)
        action = rule["action"]
        if action == "refuse":
            return responses.error_response_json(rule["error"], f"fault {rule['id']}: {action}", 400)
        if action == "delay":
            await asyncio.sleep(float(rule["seconds"]))
        while action == "hold" and rules.holds(rule["id"]):
            await asyncio.sleep(STEP_SECONDS)
        answer = await original(method, path, headers, body, query)
        if action == "abort_after" and operation == START and answer[0] < 400:
            drives.stop(json.loads(answer[2])["executionArn"], "Fault", "stopped after its start")
        if action == "late":
            await asyncio.sleep(float(rule["seconds"]))
        if action == "lose_answer":
            return responses.error_response_json("InternalFailure", f"fault {rule['id']}: {action}", 500)
        return answer

    return handle
