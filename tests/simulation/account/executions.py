"""Step Functions over the simulated executions, with the rules of its API Reference for names and sizes."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from botocore import xform_name

from tests.simulation.account.service import Parameters, Refusal, Service, arn, unfrozen
from tests.simulation.aws import stepfunctions
from tests.simulation.aws import tasks as waiting_tasks
from tests.simulation.frozen import Record, freeze, record, thaw

WORKFLOW = arn("states", "stateMachine:workflow")
# Characters that a name must not contain (Step Functions API Reference, StartExecution, `name`).
NO_NAME = re.compile(r"[\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f\ufffe\uffff]")
LARGEST_INPUT = 262_144


class StepFunctions(Service):
    """State machines by their ARNs: the workflow, and others that are created.

    A task waits with each token until it was answered once.

    Attributes:
        started: the parameters of the accepted StartExecutions.
        answers: the parameters of the answers to tasks.
    """

    def __init__(self) -> None:
        super().__init__()
        self._machines: dict[str, Parameters] = {}
        self._executions: dict[str, Record] = {}
        self._tasks = waiting_tasks.tasks()
        self.started: list[Parameters] = []
        self.answers: list[Parameters] = []
        self.make_machine(WORKFLOW)

    def make_machine(self, machine: str, kind: str = "STANDARD", **described: Any) -> str:
        """Create a state machine by its ARN or name; return its ARN."""
        made = machine if ":" in machine else arn("states", f"stateMachine:{machine}")
        self._machines[made] = {"stateMachineArn": made, "type": kind, **described}
        self._executions[made] = stepfunctions.executions()
        return made

    def execution(self, name: str, status: str = "", machine: str = WORKFLOW, **fields: Any) -> None:
        """Set fields of an execution, of which there may be none yet.

        Args:
            fields: input, started and stopped (seconds since the epoch), error, cause, output, redrives.
        """
        if machine not in self._machines:
            self.make_machine(machine)
        now, made = self.clock(), self._executions[machine]
        before = made[name].fields if name in made else {}
        begun = {"status": "RUNNING", "input": "{}", "started": now, "stopped": 0, "error": "", "cause": ""}
        changed = begun | {"redrives": 0} | before | ({"status": status} if status else {}) | fields
        if changed["status"] not in stepfunctions.OPEN and not changed["stopped"]:
            changed["stopped"] = now
        self._executions[machine] = made.with_fields(**{name: record(changed)})

    @property
    def executions(self) -> dict[str, Parameters]:
        """The descriptions of the workflow's executions, by name."""
        made = self._executions[WORKFLOW]
        arns = {name: stepfunctions.execution_arn(WORKFLOW, name) for name in made.fields}
        return {name: thaw(stepfunctions.described(made, each)) for name, each in arns.items()}

    def age_executions(self, seconds: float) -> None:
        """Move the times of all executions of the workflow so far back."""
        for name, each in self._executions[WORKFLOW].fields.items():
            stopped = each["stopped"] - seconds if each["stopped"] else 0
            self.execution(name, started=each["started"] - seconds, stopped=stopped)

    def _DescribeStateMachine(self, parameters: Parameters) -> Parameters:
        if parameters["stateMachineArn"] not in self._machines:
            raise Refusal("StateMachineDoesNotExist")
        return self._machines[parameters["stateMachineArn"]]

    def _StartExecution(self, parameters: Parameters) -> Parameters:
        parameters = {"input": "{}", **parameters}
        name = parameters["name"]
        assert 1 <= len(name) <= 80
        assert not NO_NAME.search(name)
        assert len(parameters["input"].encode()) <= LARGEST_INPUT
        self._DescribeStateMachine(parameters)
        answer = self._on_executions("start_execution", parameters["stateMachineArn"], parameters)
        self.started.append(parameters)
        return answer

    def _DescribeExecution(self, parameters: Parameters) -> Parameters:
        return self._on_executions("describe_execution", self._machine_of(parameters["executionArn"]), parameters)

    def _StopExecution(self, parameters: Parameters) -> Parameters:
        return self._on_executions("stop_execution", self._machine_of(parameters["executionArn"]), parameters)

    def _ListExecutions(self, parameters: Parameters) -> Parameters:
        assert "redriveFilter" not in parameters  # an error with a state machine's ARN (API Reference, ListExecutions)
        self._DescribeStateMachine(parameters)
        return self._on_executions("list_executions", parameters["stateMachineArn"], parameters)

    def _SendTaskSuccess(self, parameters: Parameters) -> Parameters:
        assert len(parameters["output"].encode()) <= LARGEST_INPUT
        return self._answer_task("SendTaskSuccess", parameters)

    def _SendTaskFailure(self, parameters: Parameters) -> Parameters:
        assert len(parameters["error"]) <= 256
        assert len(parameters["cause"]) <= 32_768
        return self._answer_task("SendTaskFailure", parameters)

    def _answer_task(self, operation: str, parameters: Parameters) -> Parameters:
        token = parameters["taskToken"]
        assert 1 <= len(token) <= 2048
        if token not in self._tasks:
            self._tasks = self._tasks.with_fields(**waiting_tasks.tasks(token).fields)
        self._tasks, answer = waiting_tasks.perform(
            self._tasks, xform_name(operation), freeze(parameters), self.clock()
        )
        done: Parameters = unfrozen(answer)
        self.answers.append(parameters)
        return done

    def _on_executions(self, operation: str, machine: str, parameters: Parameters) -> Parameters:
        changed, answer = stepfunctions.perform(self._executions[machine], operation, freeze(parameters), self.clock())
        self._executions[machine] = changed
        return dict(unfrozen(answer))

    def _machine_of(self, execution: str) -> str:
        head, _, place = execution.partition(":execution:")
        machine, _, name = place.partition(":")
        if not name or len(name) > 80 or NO_NAME.search(name):
            raise Refusal("InvalidArn")
        known = f"{head}:stateMachine:{machine}"
        if known not in self._machines:
            raise Refusal("ExecutionDoesNotExist")
        return known

    @property
    def _date(self) -> datetime:
        return datetime.fromtimestamp(self.clock(), UTC)
