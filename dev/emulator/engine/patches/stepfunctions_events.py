"""The task resource `events:putEvents`.

AWS: "Add EventBridge events with Step Functions": the ARNs of the state machine and of the execution are added to the
Resources of each entry, in this order (recorded in tests/conformance/test_stepfunctions.py); entries that EventBridge
refuses fail the task with EventBridge.FailedEntry.
MiniStack adds no ARNs, and reports refused entries as a success.
"""

import json
from collections.abc import Callable
from typing import Any

from dev.emulator.engine import drives
from dev.emulator.engine.emulator import PatchError
from dev.emulator.engine.emulator import stepfunctions as sfn

RESOURCE = "arn:aws:states:::events:putEvents"


def apply() -> None:
    """Register the resource."""
    if RESOURCE not in sfn._SERVICE_DISPATCH:
        raise PatchError(f"{sfn.__name__} has no {RESOURCE} any more")
    sfn._SERVICE_DISPATCH[RESOURCE] = _put_events(sfn._SERVICE_DISPATCH[RESOURCE])


def _put_events(original: Callable[..., Any]) -> Callable[..., Any]:
    def put(resource: str, arguments: dict[str, Any]) -> Any:
        drive = drives.current.get()
        arns = [drive.execution["stateMachineArn"], drive.execution["executionArn"]] if drive else []
        entries = [{**entry, "Resources": [*entry.get("Resources", []), *arns]} for entry in arguments["Entries"]]
        answer = original(resource, {**arguments, "Entries": entries})
        if answer["FailedEntryCount"]:
            raise sfn._ExecutionError("EventBridge.FailedEntry", json.dumps(answer))
        return answer

    return put
