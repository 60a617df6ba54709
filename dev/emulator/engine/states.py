"""Run the states of a drive's definition, each with MiniStack's function for its type."""

import copy
import json
from typing import Any

from dev.emulator.engine import drives
from dev.emulator.engine.drives import Drive
from dev.emulator.engine.emulator import stepfunctions as sfn


def walk(drive: Drive) -> Any:
    """Run from the drive's position to an end state; return the output. Raises ExecutionClosed if closed before."""
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
