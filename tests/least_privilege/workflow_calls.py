"""The calls of the workflow's states on every path: the operation from Resource, the parameters from Arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.least_privilege.recording import Call, Site
from tests.least_privilege.resolved_template import ROOT, Stack
from tests.workflow import interpreter
from tests.workflow.definition import FILE, states

# Step Functions guide, "IAM policies for integrated services", AWS Glue: the calls of Run a Job (.sync) after the
# start. On an abort Step Functions stops the run. Without the permission the run continues without an error.
WITH_SYNC = {"StartJobRun": ("GetJobRun", "GetJobRuns", "BatchStopJobRun")}


def calls(stack: Stack, jobs: list[str]) -> Iterator[Call]:
    """One call for each state and each set of arguments."""
    substitutes = stack.properties("Workflow")["DefinitionSubstitutions"]
    for state, arguments in sorted(_evaluated()):
        call_parameters = json.loads(re.sub(r"\$\{(\w+)\}", lambda match: str(substitutes[match[1]]), arguments))
        service, operation, more = _integration(states()[state]["Resource"])
        site = Site(str(FILE.relative_to(ROOT)), state)
        # The paths run one job. The process's item names the actual one.
        for parameters in (
            [call_parameters | {"JobName": job} for job in jobs] if "JobName" in call_parameters else [call_parameters]
        ):
            yield from (Call(service, each, parameters, site) for each in (operation, *more))


def _integration(resource: str) -> tuple[str, str, tuple[str, ...]]:
    """Parse arn:aws:states:::sqs:sendMessage, :::aws-sdk:glue:getJobRuns or :::glue:startJobRun.sync, for example."""
    service, called = resource.removeprefix("arn:aws:states:::").removeprefix("aws-sdk:").split(":")
    name, _, pattern = called.partition(".")
    operation = name[0].upper() + name[1:]
    assert pattern in ("", "sync"), f"{resource}: add its pattern to tests/least_privilege/workflow_calls.py"
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
        assert list(interpreter.walks(rounds=1))
    tasks = {name for name, state in states().items() if "Arguments" in state}
    missing = tasks - {name for name, _ in asked}
    assert not missing, f"no path contains {', '.join(sorted(missing))}"
    return asked
