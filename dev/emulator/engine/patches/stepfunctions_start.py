"""StartExecution is idempotent while the execution of that name runs with the same input.

AWS: "Step Functions API Reference: StartExecution": the same name and input as a running execution returns the
original request's result; a different input, or an execution closed within 90 days, is ExecutionAlreadyExists.
MiniStack refuses every second start of a name.
"""

from collections.abc import Callable
from typing import Any

from dev.emulator.engine.emulator import responses, wrap
from dev.emulator.engine.emulator import stepfunctions as sfn


def apply() -> None:
    """Answer a repeated start."""
    wrap(sfn, "_start_execution", _start_execution)


def _start_execution(original: Callable[[Any], Any], data: dict[str, Any]) -> Any:
    machine = sfn._resolve_state_machine_arn(data.get("stateMachineArn", "").split("#")[0])
    if machine and data.get("name"):
        earlier = sfn._executions.get(f"{machine.replace(':stateMachine:', ':execution:')}:{data['name']}")
        if earlier and earlier["status"] == "RUNNING" and earlier["input"] == data.get("input", "{}"):
            return responses.json_response({"executionArn": earlier["executionArn"], "startDate": earlier["startDate"]})
    return original(data)
