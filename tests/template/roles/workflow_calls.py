"""The calls of the workflow's states on every path: the operation from Resource, the parameters from Arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.template.roles.recording import Call, Site
from tests.template.roles.resolved_template import ROOT, Stack
from tests.workflow import interpreter
from tests.workflow.definition import FILE, states
from tests.workflow.walks import MACHINE, TOKEN, Scenario, walks

# Step Functions guide, "IAM policies for integrated services", AWS Glue, and "IAM policies for calling Step Functions
# workflows": the calls of Run a Job (.sync) after the start. On an abort Step Functions stops the run or the child.
# Without the permission it continues without an error.
WITH_SYNC = {
    "StartJobRun": ("GetJobRun", "GetJobRuns", "BatchStopJobRun"),
    "StartExecution": ("DescribeExecution", "StopExecution"),
}


def calls(stack: Stack, jobs: list[str], machines: list[str], callers: list[str]) -> Iterator[Call]:
    """One call for each state and each set of arguments.

    Args:
        machines: ARNs of the state machines that processes run.
        callers: ARNs of state machines whose tasks wait for answers.
    """
    substitutes = stack.properties("Workflow")["DefinitionSubstitutions"]
    for state, arguments in sorted(_evaluated()):
        given = json.loads(re.sub(r"\$\{(\w+)\}", lambda match: str(substitutes[match[1]]), arguments))
        service, operation, more = _integration(states()[state]["Resource"])
        site = Site(str(FILE.relative_to(ROOT)), state)
        for parameters in _actual(given, jobs, machines, callers):
            yield from (Call(service, each, parameters, site) for each in (operation, *more))


def _actual(
    given: dict[str, Any], jobs: list[str], machines: list[str], callers: list[str]
) -> Iterator[dict[str, Any]]:
    """The parameters with the names of the stack. The paths run one job and one state machine, and have one caller."""
    if "JobName" in given:
        yield from (given | {"JobName": job} for job in jobs)
    elif given.get("TaskToken") == TOKEN:
        yield from (given | {"StateMachineArn": caller} for caller in callers)
    elif {"StateMachineArn", "ExecutionArn"} & given.keys():
        for machine in machines:
            execution = f"{machine.replace(':stateMachine:', ':execution:')}:{interpreter.ME}"
            yield given | {"StateMachineArn": machine, "ExecutionArn": execution}
    else:
        yield given


def _integration(resource: str) -> tuple[str, str, tuple[str, ...]]:
    """Parse arn:aws:states:::sqs:sendMessage, :::aws-sdk:glue:getJobRuns or :::glue:startJobRun.sync, for example."""
    service, called = resource.removeprefix("arn:aws:states:::").removeprefix("aws-sdk:").split(":")
    name, _, pattern = called.partition(".")
    operation = name[0].upper() + name[1:]
    assert pattern in ("", "sync"), f"{resource}: add its pattern to tests/template/roles/workflow_calls.py"
    return service, operation, WITH_SYNC[operation] if pattern else ()


@cache
def _evaluated() -> set[tuple[str, str]]:
    """(state, its evaluated arguments as JSON) of every path."""
    asked: set[tuple[str, str]] = set()
    names = {id(state): name for name, state in interpreter.STATES.items()}
    value_of = interpreter.State.value

    def noting(self: interpreter.State, field: str, *given: Any) -> Any:
        value = value_of(self, field, *given)
        if field == "Arguments":
            asked.add((names[id(self)], json.dumps(value)))
        return value

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter.State, "value", noting)
        for target, waits, rounds in (("job", False, 1), (MACHINE, False, 1), ("job", True, 2)):
            assert list(walks(Scenario(0, target, waits, rounds)))
    tasks = {name for name, state in states().items() if "Arguments" in state}
    missing = tasks - {name for name, _ in asked}
    assert not missing, f"no path contains {', '.join(sorted(missing))}"
    return asked
