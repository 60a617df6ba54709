"""The simulated Step Functions answers calls on executions like the embedded AWS, in any order.

An execution's input defines its end: immediately without a call, or by a stop. The simulation closes one that ends
without a call after the engine has closed it. Closed executions are not stopped: the engine refuses that, with an error
that the API Reference of StopExecution does not contain.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from itertools import product
from typing import Any

from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.conftest import MachineMaker
from tests.engine.waiting_callers import Callers
from tests.simulation.aws import stepfunctions, tasks
from tests.simulation.frozen import freeze, thaw
from tests.support.profiles import share
from tests.support.waiting import wait_until

STATES = {
    "End": {
        "Type": "Choice",
        "Choices": [
            {"Condition": "{% $states.input.end = 'good' %}", "Next": "Good"},
            {"Condition": "{% $states.input.end = 'bad' %}", "Next": "Bad"},
        ],
        "Default": "Wait",
    },
    "Good": {"Type": "Succeed"},
    "Bad": {"Type": "Fail", "Error": "Broken", "Cause": "as asked"},
    "Wait": {"Type": "Wait", "Seconds": 3600, "End": True},
}
STATUS = {"good": "SUCCEEDED", "bad": "FAILED"}
IN_SIMULATION = {"stateMachineArn": stepfunctions.WORKFLOW}
_COMPARED = ("name", "status", "input", "error", "cause", "redriveCount")

_names = st.sampled_from(["one", "two"])
_inputs = st.sampled_from([json.dumps({"end": end}) for end in ("never", "good", "bad")])
STEPS = st.one_of(
    st.tuples(st.just("start"), _names, _inputs),
    st.tuples(st.just("start"), _names, _inputs),
    st.tuples(st.sampled_from(["stop", "stop_and_redrive", "redrive", "describe"]), _names),
    st.tuples(
        st.just("listed"),
        st.sampled_from(["RUNNING", "SUCCEEDED", "FAILED", "ABORTED", ""]),
        st.sampled_from(["REDRIVEN", "NOT_REDRIVEN", ""]),
    ),
)


class BothMachines:
    """One state machine in the engine and in the simulation. Every call is made on both; the answers must be equal."""

    def __init__(self, machine: MachineMaker) -> None:
        self._machine = machine
        self._arn = machine(STATES)
        self._executions = stepfunctions.executions()
        self._now = 0.0
        self.met: Counter[tuple[str, str]] = Counter()  # operation and error

    def start(self, name: str, given: str) -> None:
        fields = {"name": name, "input": given}
        known = name in self._executions
        self._both("start_execution", {"stateMachineArn": self._arn} | fields, IN_SIMULATION | fields)
        if not known:
            self._close(name)

    def stop(self, name: str) -> None:
        if name not in self._executions or self._executions[name]["status"] not in STATUS.values():
            self._about("stop_execution", name)

    def stop_and_redrive(self, name: str) -> None:
        self.stop(name)
        self.redrive(name)

    def redrive(self, name: str) -> None:
        if self._about("redrive_execution", name):
            self._close(name)

    def describe(self, name: str) -> None:
        self._about("describe_execution", name)

    def listed(self, status: str, redrive: str) -> None:
        fields = {"statusFilter": status} if status else {}
        fields |= {"redriveFilter": redrive} if redrive else {}
        self._both("list_executions", {"stateMachineArn": self._arn} | fields, IN_SIMULATION | fields)

    def _about(self, operation: str, name: str) -> bool:
        in_engine = {"executionArn": self._execution(name)}
        return self._both(
            operation, in_engine, {"executionArn": stepfunctions.execution_arn(stepfunctions.WORKFLOW, name)}
        )

    def _execution(self, name: str) -> str:
        return f"{self._arn.replace(':stateMachine:', ':execution:')}:{name}"

    def _both(self, operation: str, in_engine: dict[str, Any], in_simulation: dict[str, Any]) -> bool:
        """Whether the call succeeded."""
        self._now += 1
        self._executions, answer = stepfunctions.perform(self._executions, operation, freeze(in_simulation), self._now)
        try:
            response, code = getattr(self._machine.client, operation)(**in_engine), ""
        except ClientError as error:
            response, code = {}, error.response["Error"]["Code"]
        assert code == answer.error
        self.met[operation, code] += 1
        if not code:
            assert _comparable(response) == _comparable(thaw(answer.value))
        return not code

    def _close(self, name: str) -> None:
        """Wait for an execution that ends without a call, and close it in the simulation."""
        end = json.loads(self._executions[name]["input"])["end"]
        redrives = self._executions[name]["redrives"]
        if end in STATUS:

            def read() -> dict[str, Any] | None:
                description = self._machine.closed(self._execution(name))
                return description if description and description.get("redriveCount", 0) == redrives else None

            closed = wait_until(read, "the execution's end")
            assert closed["status"] == STATUS[end]
            self._executions = stepfunctions.close(
                self._executions, name, STATUS[end], self._now, closed.get("error", ""), closed.get("cause", "")
            )


def _comparable(description: dict[str, Any]) -> dict[str, Any]:
    """The fields that the simulation has, without ARNs, and with times replaced by True."""
    kept = {name: description[name] for name in _COMPARED if name in description}
    dates = {name: True for name in description if name in {"startDate", "stopDate"}}
    executions = (
        {"executions": [_comparable(each) for each in description["executions"]]} if "executions" in description else {}
    )
    return kept | dates | executions


def test_simulated_executions_answer_like_the_engine(machine: MachineMaker) -> None:
    met: Counter[tuple[str, str]] = Counter()

    @share(0.6)
    @given(steps=st.lists(STEPS, min_size=8, max_size=16))
    def answered_alike(steps: Any) -> None:
        both = BothMachines(machine)
        for step, *arguments in steps:
            getattr(both, step)(*arguments)
        both.listed("", "")
        met.update(both.met)

    answered_alike()
    operations = ("start_execution", "stop_execution", "redrive_execution", "describe_execution", "list_executions")
    assert met.keys() >= {(operation, "") for operation in operations} | {
        ("start_execution", "ExecutionAlreadyExists"),
        ("stop_execution", "ExecutionDoesNotExist"),
        ("redrive_execution", "ExecutionDoesNotExist"),
        ("redrive_execution", "ExecutionNotRedrivable"),
        ("describe_execution", "ExecutionDoesNotExist"),
    }


ANSWERS: dict[str, dict[str, str]] = {
    "send_task_heartbeat": {},
    "send_task_success": {"output": "1"},
    "send_task_failure": {"error": "Refused"},
}


def test_simulated_tasks_answer_like_the_engine(callers: Callers) -> None:
    """Each pair of answers and ends, on the same task."""
    arn = callers.machine(callers.asks())
    pairs = list(product([*ANSWERS, "stop"], repeat=2))
    executions = [callers.machine.start(arn, {"number": number}) for number in range(len(pairs))]
    tokens = {asked["item"]["number"]: asked["token"] for asked in (callers.received() for _ in pairs)}
    simulated = tasks.tasks(*tokens.values())
    for number, steps in enumerate(pairs):
        for step in steps:
            parameters = {"taskToken": tokens[number], **ANSWERS.get(step, {})}
            if step == "stop":
                with suppress(ClientError):  # the engine refuses to stop a closed execution
                    callers.client.stop_execution(executionArn=executions[number])
                simulated = tasks.end(simulated, tokens[number])
                continue
            simulated, answer = tasks.perform(simulated, step, freeze(parameters), 0)
            try:
                getattr(callers.client, step)(**parameters)
                code = ""
            except ClientError as error:
                code = error.response["Error"]["Code"]
            assert code == answer.error, steps
    for number, execution in enumerate(executions):
        status = simulated[tokens[number]]["status"]
        if status == "WAITS":
            callers.client.stop_execution(executionArn=execution)
        else:
            assert callers.end_of(execution)["status"] == {"ENDED": "ABORTED"}.get(status, status)
