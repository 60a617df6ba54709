"""The simulated AWS as an account for rows: that of the tests (tests/simulation/account), and a clock that only waiting
moves.

Its state machines run the states that the rows need: Pass, Choice, Succeed, Fail, Wait, a read of DynamoDB, and a task
that waits for its token.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from botocore import xform_name
from botocore.exceptions import ClientError

from tests.facts.account import Account
from tests.facts.facts import SIMULATED, Failed
from tests.simulation.account.account import AwsAccount
from tests.simulation.account.service import Parameters, unfrozen
from tests.simulation.aws import dynamodb, glue, tasks
from tests.simulation.frozen import freeze
from tests.workflow.interpreter import State, StateFailed, evaluate

LARGEST_RESULT = 262_144  # bytes of a task's result


class SimulatedAccount(Account):
    """One small account, empty at first."""

    def __init__(self) -> None:
        self.aws = _RunningAws()
        super().__init__(self.client, conflict=self.aws.conflicts.append)
        self.place = SIMULATED

    def client(self, service: str) -> Any:
        return _SimulatedClient(self.aws, service)

    def wait[Value](self, condition: Callable[[], Value], what: str, seconds: float = 0) -> Value:
        """As in Account; each second passes immediately."""
        for _ in range(10_000):
            if value := condition():
                return value
            self.aws.pass_second()
        raise Failed(f"waited for {what}")


class _RunningAws(AwsAccount):
    """An account whose state machines run. `conflicts`: the operations whose next call meets a transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.clock = lambda: self.now
        self.conflicts: list[str] = []
        self._waiting: dict[str, tuple[str, str]] = {}  # token -> the machine and the name of its execution

    def pass_second(self) -> None:
        """Let a second pass, and end the executions that have timed out."""
        self.now += 1
        for machine, executions in self._executions.items():
            seconds = self._definition(machine).get("TimeoutSeconds")
            for name, execution in executions.fields.items():
                if seconds and execution["status"] == "RUNNING" and self.now >= execution["started"] + seconds:
                    self.execution(name, "TIMED_OUT", machine)

    def _perform_operation(self, model: Any, parameters: Parameters) -> Parameters:
        if model.name in self.conflicts:
            self.conflicts.remove(model.name)
            return unfrozen(dynamodb.conflict(xform_name(model.name), freeze(parameters)))
        return super()._perform_operation(model, parameters)

    def _CreateQueue(self, parameters: Parameters) -> Parameters:
        attributes = dict(parameters["Attributes"]) if "Attributes" in parameters else {}
        visibility = int(attributes.pop("VisibilityTimeout", 30))
        return {"QueueUrl": self.make_queue(parameters["QueueName"], visibility, **attributes)}

    def _CreateStateMachine(self, parameters: Parameters) -> Parameters:
        return {"stateMachineArn": self.make_machine(parameters["name"], definition=parameters["definition"])}

    def _CreateJob(self, parameters: Parameters) -> Parameters:
        name, limit = parameters["Name"], parameters["ExecutionProperty"]["MaxConcurrentRuns"]
        self.make_job(name)
        self._runs = self._runs.with_fields(**glue.jobs(**{name: limit}).fields)
        return {"Name": name}

    def _StartJobRun(self, parameters: Parameters) -> Parameters:
        return self._on_glue("start_job_run", parameters)

    def _RedriveExecution(self, parameters: Parameters) -> Parameters:
        return self._on_executions("redrive_execution", self._machine_of(parameters["executionArn"]), parameters)

    def _SendTaskHeartbeat(self, parameters: Parameters) -> Parameters:
        return self._answer_task("SendTaskHeartbeat", parameters)

    def _definition(self, machine: str) -> dict[str, Any]:
        definition: dict[str, Any] = json.loads(self._machines[machine].get("definition", "{}"))
        return definition

    def _on_executions(self, operation: str, machine: str, parameters: Parameters) -> Parameters:
        self.now += 1  # no two calls have the same time
        before = self._executions[machine]
        answer = super()._on_executions(operation, machine, parameters)
        if self._executions[machine] is before:
            return answer
        name = parameters.get("name") or parameters["executionArn"].rpartition(":")[2]
        if operation == "stop_execution":
            for token in [each for each, waiting in self._waiting.items() if waiting == (machine, name)]:
                self._tasks = tasks.end(self._tasks, token)
        else:
            self._run(machine, name)
        return answer

    def _answer_task(self, operation: str, parameters: Parameters) -> Parameters:
        answer = super()._answer_task(operation, parameters)
        token = parameters["taskToken"]
        if (status := self._tasks[token]["status"]) != "WAITS":
            machine, name = self._waiting[token]
            self.execution(name, status, machine)
        return answer

    def _run(self, machine: str, name: str) -> None:
        """Run an execution until it waits or ends."""
        definition = self._definition(machine)
        at, variables = definition["StartAt"], dict[str, Any]()
        known: dict[str, Any] = {"input": json.loads(self._executions[machine][name]["input"])}
        try:
            while True:
                fields = definition["States"][at]
                kind, state = fields["Type"], State(fields)
                if kind == "Wait":
                    return
                if fields.get("Resource", "").endswith(".waitForTaskToken"):
                    token, asked = f"token-{len(self._waiting)}", fields["Arguments"]
                    self._waiting[token] = (machine, name)
                    body = json.dumps(dict.fromkeys(asked["MessageBody"], token))
                    self._SendMessage({"QueueUrl": asked["QueueUrl"], "MessageBody": body})
                    return
                if kind == "Fail":
                    raise StateFailed(fields["Error"], fields.get("Cause"))
                if kind == "Choice":
                    chosen = (each for each in fields["Choices"] if evaluate(each["Condition"], known, variables))
                    at = next(chosen, {"Next": fields.get("Default")})["Next"]
                    continue
                try:
                    known["result"] = self._result(fields)
                except StateFailed as failed:
                    at, variables = state.catch(failed, {}, variables)
                    continue
                output = evaluate(fields.get("Output", {}), known, variables)
                variables |= evaluate(fields.get("Assign", {}), known, variables)
                if "Next" not in fields:
                    self.execution(name, "SUCCEEDED", machine, output=json.dumps(output))
                    return
                at = fields["Next"]
        except StateFailed as failed:
            self.execution(name, "FAILED", machine, error=failed.error, cause=failed.cause or "")

    def _result(self, fields: dict[str, Any]) -> Any:
        """The result of a task that reads DynamoDB, or of any other state."""
        if fields["Type"] != "Task":
            return None
        result = self.tables.perform("GetItem", fields["Arguments"])
        if len(json.dumps(result)) > LARGEST_RESULT:
            raise StateFailed("States.DataLimitExceeded", "")
        return result


class _SimulatedClient:
    """A client without botocore, which is slow for hundreds of calls."""

    def __init__(self, aws: AwsAccount, service: str) -> None:
        self._aws, self._service = aws, SimpleNamespace(service_name=service)

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        model = SimpleNamespace(name=operation.title().replace("_", ""), service_model=self._service)

        def call(**parameters: Any) -> Any:
            _, answer = self._aws.answer(model, parameters)
            if "Error" in answer:
                raise ClientError(answer, model.name)
            return answer

        return call
