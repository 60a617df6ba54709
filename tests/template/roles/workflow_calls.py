"""The calls of the workflow's states: the operation from Resource, the parameters from Arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.template.roles.recording import Call, Site
from tests.template.roles.resolved_template import ROOT, Stack
from tests.workflow.definition import FILE, states
from tests.workflow.interpreter import ME, evaluate

# Step Functions guide, "IAM policies for integrated services", AWS Glue, and "IAM policies for calling Step Functions
# workflows": the calls of Run a Job (.sync) after the start. On an abort Step Functions stops the run or the child.
# Without the permission it continues without an error.
WITH_SYNC = {
    "StartJobRun": ("GetJobRun", "GetJobRuns", "BatchStopJobRun"),
    "StartExecution": ("DescribeExecution", "StopExecution"),
}
TOKEN = "the task token"


def calls(stack: Stack, jobs: list[str], machines: list[str], callers: list[str]) -> Iterator[Call]:
    """The calls of each task, for each job, state machine and caller.

    Args:
        machines: ARNs of the state machines that processes run.
        callers: ARNs of state machines whose tasks wait for answers.
    """
    substitutes = stack.properties("Workflow")["DefinitionSubstitutions"]
    for state in (name for name, fields in states().items() if fields["Type"] == "Task"):
        arguments = json.dumps(_evaluated(state))
        given = json.loads(re.sub(r"\$\{(\w+)\}", lambda match: str(substitutes[match[1]]), arguments))
        service, operation, more = _integration(states()[state]["Resource"])
        site = Site(str(FILE.relative_to(ROOT)), state)
        for parameters in _actual(given, jobs, machines, callers):
            yield from (Call(service, each, parameters, site) for each in (operation, *more))


def _actual(
    given: dict[str, Any], jobs: list[str], machines: list[str], callers: list[str]
) -> Iterator[dict[str, Any]]:
    """The parameters with the names of the stack."""
    if "JobName" in given:
        yield from (given | {"JobName": job} for job in jobs)
    elif given.get("TaskToken") == TOKEN:
        yield from (given | {"StateMachineArn": caller} for caller in callers)
    elif {"StateMachineArn", "ExecutionArn"} & given.keys():
        for machine in machines:
            execution = f"{machine.replace(':stateMachine:', ':execution:')}:{ME}"
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


def _evaluated(state: str) -> Any:
    """The arguments of a state. Only resources matter, and none of them depends on the path to the state."""
    context = {"Execution": {"Name": ME, "Id": "arn:p-1", "Input": {"process": "p"}, "RedriveCount": 0}}
    context["State"] = {"EnteredTime": "2026-01-01T00:00:00.000Z"}
    known = {"target": "j", "task_token": TOKEN, "run_id": "jr_1", "next_page": "", "timeout_minutes": 60}
    known |= {"run_state": "FAILED", "failure": {"error": "E", "cause": "C"}, "caller": "NONE", "answer": ""}
    return evaluate(states()[state]["Arguments"], {"context": context}, known)
