"""Facts of executions: their starts, ends, redrives, descriptions and lists."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev.emulator.aws import EmbeddedAws
from tests.facts.facts import Fact, Facts, code_of, documented, localstack
from tests.facts.workflows import ENDS, PARTS, Workflows
from tests.profiles import share
from tests.simulation.aws import stepfunctions
from tests.simulation.frozen import freeze, thaw
from tests.waiting import wait_until

_SHOWN = ("name", "status", "error", "cause", "redriveCount")
FAILURE = {"FAILED": ("Broken", "as asked")}


class Executions(ABC):
    """The executions of one state machine. A start or a redrive also waits for an end that the input states."""

    @abstractmethod
    def start(self, name: str, given: dict[str, Any]) -> str:
        """StartExecution: the error's code, or "accepted"."""

    @abstractmethod
    def stop(self, name: str, **fields: str) -> str:
        """StopExecution, with an error and a cause if given: the error's code, or "accepted"."""

    @abstractmethod
    def redrive(self, name: str) -> str:
        """RedriveExecution: the error's code, or "accepted"."""

    @abstractmethod
    def time_out(self, name: str) -> None:
        """Wait until the state machine's timeout has ended the execution."""

    @abstractmethod
    def describe(self, name: str) -> dict[str, Any] | str:
        """DescribeExecution: what is compared of it; or the error's code."""

    @abstractmethod
    def listed(self, status: str = "") -> list[dict[str, Any]]:
        """ListExecutions of a status, or of all: what is compared of each entry."""


class EngineExecutions(Executions):
    """Executions in the embedded AWS."""

    def __init__(self, aws: EmbeddedAws, **fields: Any) -> None:
        self._workflows = Workflows(aws)
        self._client = self._workflows.stepfunctions
        self._machine = self._workflows.create(ENDS, **fields)

    def start(self, name: str, given: dict[str, Any]) -> str:
        return self._settled(name, code_of(lambda: self._workflows.start(self._machine, given, name)))

    def stop(self, name: str, **fields: str) -> str:
        return code_of(lambda: self._client.stop_execution(executionArn=self._execution(name), **fields))

    def redrive(self, name: str) -> str:
        return self._settled(name, code_of(lambda: self._client.redrive_execution(executionArn=self._execution(name))))

    def time_out(self, name: str) -> None:
        self._workflows.end_of(self._execution(name))

    def describe(self, name: str) -> dict[str, Any] | str:
        described: dict[str, Any] = {}
        code = code_of(lambda: described.update(self._workflows.describe(self._execution(name))))
        return _shown(described) or code

    def listed(self, status: str = "") -> list[dict[str, Any]]:
        fields = {"statusFilter": status} if status else {}
        answer = self._client.list_executions(stateMachineArn=self._machine, **fields)
        return [_shown(entry) for entry in answer["executions"]]

    def _settled(self, name: str, code: str) -> str:
        if code == "accepted":
            end = json.loads(self._workflows.describe(self._execution(name))["input"]).get("end")
            wait_until(
                lambda: end is None or self._workflows.describe(self._execution(name))["status"] == end, "the end"
            )
        return code

    def _execution(self, name: str) -> str:
        return f"{self._machine.replace(':stateMachine:', ':execution:')}:{name}"


class SimulatedExecutions(Executions):
    """Executions in the simulated AWS, with a clock of its own."""

    def __init__(self, **_: Any) -> None:
        self._executions = stepfunctions.executions()
        self._now = 0.0

    def start(self, name: str, given: dict[str, Any]) -> str:
        request = {"stateMachineArn": stepfunctions.WORKFLOW, "name": name, "input": json.dumps(given)}
        return self._settled(name, self._perform("start_execution", request)[0])

    def stop(self, name: str, **fields: str) -> str:
        return self._perform("stop_execution", {"executionArn": self._execution(name), **fields})[0] or "accepted"

    def redrive(self, name: str) -> str:
        return self._settled(name, self._perform("redrive_execution", {"executionArn": self._execution(name)})[0])

    def time_out(self, name: str) -> None:
        self._executions = stepfunctions.close(self._executions, name, "TIMED_OUT", self._now)

    def describe(self, name: str) -> dict[str, Any] | str:
        code, described = self._perform("describe_execution", {"executionArn": self._execution(name)})
        return code or _shown(described)

    def listed(self, status: str = "") -> list[dict[str, Any]]:
        fields = {"statusFilter": status} if status else {}
        _, answer = self._perform("list_executions", {"stateMachineArn": stepfunctions.WORKFLOW, **fields})
        return [_shown(entry) for entry in answer["executions"]]

    def _perform(self, operation: str, request: dict[str, Any]) -> tuple[str, Any]:
        self._now += 1
        self._executions, answer = stepfunctions.perform(self._executions, operation, freeze(request), self._now)
        return answer.error, thaw(answer.value)

    def _settled(self, name: str, error: str) -> str:
        end = json.loads(self._executions[name]["input"]).get("end") if not error else None
        if end and self._executions[name]["status"] == "RUNNING":
            failure = FAILURE.get(end, ())
            self._executions = stepfunctions.close(self._executions, name, end, self._now, *failure)
        return error or "accepted"

    def _execution(self, name: str) -> str:
        return stepfunctions.execution_arn(stepfunctions.WORKFLOW, name)


def _shown(described: dict[str, Any]) -> dict[str, Any]:
    return {name: described[name] for name in _SHOWN if described.get(name) is not None}


type MakeExecutions = Callable[..., Executions]  # with fields of the state machine
FACTS: Facts[MakeExecutions] = Facts()


@FACTS.row(
    "An execution that its state machine's TimeoutSeconds has ended has neither an error nor a cause.",
    source=localstack(f"{PARTS}/timeouts/test_timeouts.py", "test_global_timeout"),
    expected={"name": "a", "status": "TIMED_OUT", "redriveCount": 0},
)
def timeout_has_no_error(make: MakeExecutions) -> Any:
    executions = make(TimeoutSeconds=1)
    executions.start("a", {})
    executions.time_out("a")
    return executions.describe("a")


@FACTS.row(
    "An execution that was stopped has the error and the cause of the stop, or neither.",
    source=documented("Step Functions API Reference, StopExecution"),
    expected=[
        {"name": "a", "status": "ABORTED", "redriveCount": 0},
        {"name": "b", "status": "ABORTED", "redriveCount": 0, "error": "E", "cause": "C"},
    ],
)
def stop_keeps_error_and_cause(make: MakeExecutions) -> Any:
    executions = make()
    for name, fields in (("a", {}), ("b", {"error": "E", "cause": "C"})):
        executions.start(name, {})
        executions.stop(name, **fields)
    return [executions.describe("a"), executions.describe("b")]


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
    "A call about an execution that does not exist is refused.",
    source=documented("Step Functions API Reference, DescribeExecution, StopExecution and RedriveExecution"),
    expected=["ExecutionDoesNotExist"] * 3,
)
def missing_execution(make: MakeExecutions) -> list[Any]:
    executions = make()
    return [executions.describe("none"), executions.stop("none"), executions.redrive("none")]


@FACTS.row(
    "An aborted and a failed execution can be redriven; a running and a successful one cannot.",
    source=documented("Step Functions API Reference, RedriveExecution, ExecutionNotRedrivable"),
    expected=["accepted", "ExecutionNotRedrivable", "ExecutionNotRedrivable", "accepted"],
)
def redrivable_ends(make: MakeExecutions) -> list[str]:
    executions = make()
    for name, end in (("aborted", {}), ("good", {"end": "SUCCEEDED"}), ("bad", {"end": "FAILED"})):
        executions.start(name, end)
    executions.stop("aborted")
    return [executions.redrive(name) for name in ("aborted", "aborted", "good", "bad")]


@FACTS.row(
    "A list has the newest first: running executions by their start, others by their end; each with its redrives.",
    source=documented("Step Functions API Reference, ListExecutions and ExecutionListItem, redriveCount"),
    expected={"RUNNING": [("c", 0), ("a", 1)], "ABORTED": [("b", 0), ("d", 0)]},
)
def lists_are_ordered(make: MakeExecutions) -> dict[str, list[tuple[str, int]]]:
    executions = make()
    for name in "abcd":
        executions.start(name, {})
    for name in "adb":
        executions.stop(name)
    executions.redrive("a")
    statuses = ("RUNNING", "ABORTED")
    return {each: [(entry["name"], entry["redriveCount"]) for entry in executions.listed(each)] for each in statuses}


@pytest.mark.parametrize("fact", FACTS, ids=attrgetter("name"))
def test_executions(fact: Fact[MakeExecutions], aws: EmbeddedAws) -> None:
    fact.check(embedded=partial(EngineExecutions, aws), simulated=SimulatedExecutions)


NAMES = st.sampled_from(["one", "two"])
CALLS = st.one_of(
    st.tuples(st.just("start"), NAMES, st.sampled_from([{}, {"end": "SUCCEEDED"}, {"end": "FAILED"}])),
    st.tuples(st.sampled_from(["stop", "redrive", "describe"]), NAMES),
    st.tuples(st.just("listed"), st.sampled_from(["RUNNING", "SUCCEEDED", "FAILED", "ABORTED", ""])),
)


def test_simulated_executions_answer_as_the_embedded_aws_in_any_order_of_calls(aws: EmbeddedAws) -> None:
    met: Counter[tuple[str, str]] = Counter()

    @share(0.4)
    @given(calls=st.lists(CALLS, min_size=8, max_size=16))
    def answered_alike(calls: list[Any]) -> None:
        embedded, simulated = EngineExecutions(aws), SimulatedExecutions()
        for name, *arguments in calls:
            known = simulated.describe(arguments[0])
            if name == "stop" and isinstance(known, dict) and known["status"] != "RUNNING":
                continue  # the embedded AWS refuses it, with an error that the API Reference does not have
            answers = [getattr(each, name)(*arguments) for each in (embedded, simulated)]
            assert answers[0] == answers[1], (name, *arguments)
            met[name, answers[0] if isinstance(answers[0], str) else ""] += 1

    answered_alike()
    assert met.keys() >= {("start", "ExecutionAlreadyExists"), ("redrive", "ExecutionNotRedrivable")} | {
        (name, answer) for name in ("stop", "redrive") for answer in ("accepted", "ExecutionDoesNotExist")
    }
