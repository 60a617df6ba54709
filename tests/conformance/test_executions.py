"""Facts of executions: their starts, ends and descriptions."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

import pytest

from dev.emulator.aws import EmbeddedAws
from tests.conformance.facts import Fact, Facts, code_of, documented, localstack
from tests.conformance.workflows import PARTS, WAIT, Workflows
from tests.simulation.aws import stepfunctions
from tests.simulation.frozen import freeze, thaw


class Executions(ABC):
    """The executions of one state machine, which wait until they are stopped or time out."""

    @abstractmethod
    def start(self, name: str, given: dict[str, Any]) -> str:
        """StartExecution: the error's code, or "accepted"."""

    @abstractmethod
    def stop(self, name: str) -> None:
        """StopExecution, without an error and a cause."""

    @abstractmethod
    def time_out(self, name: str) -> None:
        """Wait until the state machine's timeout has ended the execution."""

    @abstractmethod
    def describe(self, name: str) -> dict[str, Any] | str:
        """DescribeExecution: status, error and cause, as far as there are such; or the error's code."""


class EngineExecutions(Executions):
    """Executions in the embedded AWS."""

    def __init__(self, aws: EmbeddedAws, **fields: Any) -> None:
        self._machine = Workflows(aws).machine
        self._arn = self._machine(WAIT, **fields)

    def start(self, name: str, given: dict[str, Any]) -> str:
        return code_of(lambda: self._machine.start(self._arn, given, name))

    def stop(self, name: str) -> None:
        self._machine.client.stop_execution(executionArn=self._execution(name))

    def time_out(self, name: str) -> None:
        self._machine.end_of(self._execution(name))

    def describe(self, name: str) -> dict[str, Any] | str:
        described: dict[str, Any] = {}
        code = code_of(lambda: described.update(self._machine.describe(self._execution(name))))
        return _shown(described) or code

    def _execution(self, name: str) -> str:
        return f"{self._arn.replace(':stateMachine:', ':execution:')}:{name}"


class SimulatedExecutions(Executions):
    """Executions in the simulated AWS."""

    def __init__(self, **_: Any) -> None:
        self._executions = stepfunctions.executions()

    def start(self, name: str, given: dict[str, Any]) -> str:
        request = {"stateMachineArn": stepfunctions.WORKFLOW, "name": name, "input": json.dumps(given)}
        return self._perform("start_execution", request)[0] or "accepted"

    def stop(self, name: str) -> None:
        self._perform("stop_execution", {"executionArn": self._execution(name)})

    def time_out(self, name: str) -> None:
        self._executions = stepfunctions.close(self._executions, name, "TIMED_OUT", 1.0)

    def describe(self, name: str) -> dict[str, Any] | str:
        code, described = self._perform("describe_execution", {"executionArn": self._execution(name)})
        return code or _shown(described)

    def _perform(self, operation: str, request: dict[str, Any]) -> tuple[str, Any]:
        self._executions, answer = stepfunctions.perform(self._executions, operation, freeze(request), 0.0)
        return answer.error, thaw(answer.value)

    def _execution(self, name: str) -> str:
        return stepfunctions.execution_arn(stepfunctions.WORKFLOW, name)


def _shown(described: dict[str, Any]) -> dict[str, Any]:
    return {name: described[name] for name in ("status", "error", "cause") if name in described}


type MakeExecutions = Callable[..., Executions]  # with fields of the state machine
FACTS: Facts[MakeExecutions] = Facts()


@FACTS.row(
    "An execution that its state machine's TimeoutSeconds has ended has neither an error nor a cause.",
    source=localstack(f"{PARTS}/timeouts/test_timeouts.py", "test_global_timeout"),
    expected={"status": "TIMED_OUT"},
)
def timeout_has_no_error(make: MakeExecutions) -> Any:
    executions = make(TimeoutSeconds=1)
    executions.start("a", {})
    executions.time_out("a")
    return executions.describe("a")


@FACTS.row(
    "An execution that was stopped without an error and a cause has neither.",
    source=documented("Step Functions API Reference, StopExecution"),
    expected={"status": "ABORTED"},
)
def stop_without_an_error(make: MakeExecutions) -> Any:
    executions = make()
    executions.start("a", {})
    executions.stop("a")
    return executions.describe("a")


@FACTS.row(
    "A start with the name and the input of a running execution is accepted; another input is refused.",
    source=localstack(f"{PARTS}/test_sfn_api.py", "test_start_execution_idempotent"),
    expected=["accepted", "accepted", "ExecutionAlreadyExists"],
)
def start_is_idempotent(make: MakeExecutions) -> list[str]:
    executions = make()
    return [executions.start("a", given) for given in ({"a": 1}, {"a": 1}, {"a": 2})]


@FACTS.row(
    "A start with the name and the input of a closed execution is refused.",
    source=documented("Step Functions API Reference, StartExecution"),
    expected="ExecutionAlreadyExists",
)
def start_of_a_closed_name(make: MakeExecutions) -> str:
    executions = make()
    executions.start("a", {"a": 1})
    executions.stop("a")
    return executions.start("a", {"a": 1})


@FACTS.row(
    "The description of an execution that does not exist is refused.",
    source=documented("Step Functions API Reference, DescribeExecution"),
    expected="ExecutionDoesNotExist",
)
def missing_execution(make: MakeExecutions) -> Any:
    return make().describe("none")


@pytest.mark.parametrize("fact", FACTS, ids=attrgetter("name"))
def test_executions(fact: Fact[MakeExecutions], aws: EmbeddedAws) -> None:
    fact.check(embedded=partial(EngineExecutions, aws), simulated=SimulatedExecutions)
