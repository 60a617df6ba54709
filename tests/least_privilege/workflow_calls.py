"""What the workflow's states call, on every walk through them: the Resource says what, the Arguments about what."""

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

# Step Functions guide, "IAM policies for integrated services", AWS Glue: what Run a Job (.sync) asks for beside the
# start. On an abort Step Functions stops the run; without the permission it stays, and nobody is told.
WITH_SYNC = {"StartJobRun": ("GetJobRun", "GetJobRuns", "BatchStopJobRun")}


def calls(stack: Stack, jobs: list[str]) -> Iterator[Call]:
    """One call for each state and each thing that it can be about."""
    substitutes = stack.properties("Workflow")["DefinitionSubstitutions"]
    for state, arguments in sorted(_asked()):
        call_parameters = json.loads(re.sub(r"\$\{(\w+)\}", lambda match: str(substitutes[match[1]]), arguments))
        service, operation, more = _integration(states()[state]["Resource"])
        site = Site(str(FILE.relative_to(ROOT)), state)
        # The walks run one job; which it is stands in the process's item.
        for parameters in (
            [call_parameters | {"JobName": job} for job in jobs] if "JobName" in call_parameters else [call_parameters]
        ):
            yield from (Call(service, each, parameters, site) for each in (operation, *more))


def _integration(resource: str) -> tuple[str, str, tuple[str, ...]]:
    """Of arn:aws:states:::sqs:sendMessage, say, or :::aws-sdk:glue:getJobRuns, or :::glue:startJobRun.sync."""
    service, called = resource.removeprefix("arn:aws:states:::").removeprefix("aws-sdk:").split(":")
    name, _, pattern = called.partition(".")
    operation = name[0].upper() + name[1:]
    assert pattern in ("", "sync"), f"teach tests/least_privilege/workflow_calls.py what {resource} asks for"
    return service, operation, WITH_SYNC[operation] if pattern else ()


@cache
def _asked() -> set[tuple[str, str]]:
    """(state, its arguments as JSON), as the walks have evaluated them."""
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
    assert not missing, f"no walk comes to {', '.join(sorted(missing))}"
    return asked
