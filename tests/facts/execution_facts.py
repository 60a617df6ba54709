"""Facts of executions: their starts, ends, redrives, descriptions, lists and events."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.facts.account import Account
from tests.facts.facts import DEPLOYED, EVERYWHERE, HAND_OFF, Facts, code_of, documented, localstack
from tests.facts.machines import ENDS, PARTS, Machines, execution_arn
from tests.facts.queues import Queue, target

_SHOWN = ("name", "status", "error", "cause", "redriveCount")


class Executions:
    """The executions of one state machine. A start or a redrive also waits for an end that the input states."""

    def __init__(self, aws: Account, **fields: Any) -> None:
        self.aws, self.machines = aws, Machines(aws)
        self.machine, self._client = self.machines.create(ENDS, **fields), self.machines.client

    def start(self, name: str, given: dict[str, Any]) -> str:
        """StartExecution: the error's code, or "accepted"."""
        return self._settled(name, code_of(lambda: self.machines.start(self.machine, given, name)))

    def stop(self, name: str, **fields: str) -> str:
        """StopExecution, with an error and a cause if given: the error's code, or "accepted"."""
        return code_of(lambda: self._client.stop_execution(executionArn=self.arn(name), **fields))

    def redrive(self, name: str) -> str:
        """RedriveExecution: the error's code, or "accepted"."""
        return self._settled(name, code_of(lambda: self._client.redrive_execution(executionArn=self.arn(name))))

    def describe(self, name: str) -> dict[str, Any] | str:
        """DescribeExecution: what is compared of it; or the error's code."""
        described: dict[str, Any] = {}
        code = code_of(lambda: described.update(self.machines.describe(self.arn(name))))
        return _shown(described) or code

    def listed(self, status: str = "") -> list[dict[str, Any]]:
        """ListExecutions of a status, or of all: what is compared of each entry."""
        fields = {"statusFilter": status} if status else {}
        answer = self._client.list_executions(stateMachineArn=self.machine, **fields)
        return [_shown(entry) for entry in answer["executions"]]

    def arn(self, name: str) -> str:
        """The execution's ARN."""
        return execution_arn(self.machine, name)

    def _settled(self, name: str, code: str) -> str:
        if code == "accepted":
            end = json.loads(self.machines.describe(self.arn(name))["input"]).get("end")
            self.aws.wait(lambda: end in (None, self.machines.describe(self.arn(name))["status"]), "the end")
        return code


def _shown(described: dict[str, Any]) -> dict[str, Any]:
    return {name: described[name] for name in _SHOWN if described.get(name) is not None}


type MakeExecutions = Callable[..., Executions]  # with fields of the state machine
FACTS = Facts("executions", EVERYWHERE, given=lambda aws: partial(Executions, aws))


@FACTS.row(
    "An execution that its state machine's TimeoutSeconds has ended has neither an error nor a cause.",
    source=localstack(f"{PARTS}/timeouts/test_timeouts.py", "test_global_timeout"),
    expected={"name": "a", "status": "TIMED_OUT", "redriveCount": 0},
)
def timeout_has_no_error(make: MakeExecutions) -> Any:
    executions = make(TimeoutSeconds=1)
    executions.start("a", {})
    executions.machines.end_of(executions.arn("a"))
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
    "A start with the name and the input of a running execution is accepted; one with another input is refused, and so "
    "is any of a closed execution.",
    source=(
        localstack(f"{PARTS}/test_sfn_api.py", "test_start_execution_idempotent"),
        documented("Step Functions API Reference, StartExecution"),
    ),
    expected=["accepted", "accepted", "ExecutionAlreadyExists", "ExecutionAlreadyExists"],
)
def start_is_idempotent(make: MakeExecutions) -> list[str]:
    executions = make()
    codes = [executions.start("a", given) for given in ({"a": 1}, {"a": 1}, {"a": 2})]
    executions.stop("a")
    return [*codes, executions.start("a", {"a": 1})]


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

    def listed(status: str) -> list[tuple[str, int]]:
        """A list lags in AWS, so wait for both entries."""
        executions.aws.wait(lambda: len(executions.listed(status)) == 2, "the list")
        return [(entry["name"], entry["redriveCount"]) for entry in executions.listed(status)]

    return {status: listed(status) for status in ("RUNNING", "ABORTED")}


@FACTS.row(
    f"Each end of an execution has a status event within {HAND_OFF:.0f} s, and one rule may receive them all.",
    source=documented("Step Functions Developer Guide, Automating Step Functions event delivery with EventBridge"),
    expected=lambda late: (
        late.keys() == {"SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"} and max(late.values()) <= HAND_OFF
    ),
    unlike={"SUCCEEDED": 0.4, "FAILED": 0.5, "TIMED_OUT": 0.4},
    on=DEPLOYED,
    depends="S4: the function of endings settles and publishes an end by its event. Otherwise the janitor does, within "
    "two minutes: correct WorkflowClosedRule",
)
def status_events_of_all_ends(make: MakeExecutions) -> dict[str, float]:
    executions = make(TimeoutSeconds=3)
    queue = _closings(executions)
    for name, given in (("good", {"end": "SUCCEEDED"}), ("bad", {"end": "FAILED"}), ("late", {}), ("stopped", {})):
        executions.machines.start(executions.machine, given, name)
    executions.stop("stopped")
    late: dict[str, float] = {}
    for _ in range(4):
        detail = queue.take()["detail"]
        late[detail["status"]] = round(time.time() - detail["stopDate"] / 1000, 1)
    return late


def _closings(executions: Executions) -> Queue:
    """A queue that receives the status events of the executions' ends."""
    aws, queue, rule = executions.aws, target(executions.aws), executions.aws.name("ends")
    events = aws.client("events")
    detail = {"stateMachineArn": [executions.machine], "status": ["SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"]}
    pattern = {"source": ["aws.states"], "detail-type": ["Step Functions Execution Status Change"], "detail": detail}
    events.put_rule(Name=rule, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=rule, Targets=[{"Id": "queue", "Arn": queue.arn}])
    aws.stopped.wait(aws.timings.settle)
    return queue
