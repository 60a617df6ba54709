"""The simulated AWS as an account: its pure functions behind clients, and a clock that only waiting moves.

Its state machines run the states that the rows need: Pass, Choice, Succeed, Fail, Wait, a read of DynamoDB, and a task
that waits for its token.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from tests.facts.account import Account
from tests.facts.facts import SIMULATED, Failed
from tests.simulation.aws import dynamodb, glue, scheduler, sqs, stepfunctions, tasks
from tests.simulation.frozen import Record, freeze, record, thaw
from tests.simulation.transcript import Answer
from tests.workflow.interpreter import State, StateFailed, evaluate

MACHINES = "arn:aws:states:us-east-1:000000000000:stateMachine:"
LARGEST_RESULT = 262_144  # bytes of a task's result


class SimulatedAccount(Account):
    """One small account, empty at first."""

    def __init__(self) -> None:
        self._conflicts: list[str] = []
        super().__init__(lambda service: _SimulatedClient(self, service), conflict=self._conflicts.append)
        self.place = SIMULATED
        self.now = 0.0
        self.tables = dynamodb.tables(requests=[], slots=[])
        self.queues = self.jobs = self.schedules = self.tokens = record({})
        self.machines: dict[str, dict[str, Any]] = {}  # ARN -> definition
        self.executions: dict[str, Record] = {}  # ARN of the machine -> executions
        self._waiting: dict[str, tuple[str, str]] = {}  # token -> the machine and the name of its execution

    def client(self, service: str) -> Any:
        return _SimulatedClient(self, service)

    def wait[Value](self, condition: Callable[[], Value], what: str, seconds: float = 0) -> Value:
        """As in Account; each second passes immediately."""
        for _ in range(10_000):
            if value := condition():
                return value
            self.now += 1
            for machine, definition in self.machines.items():
                self._time_out(machine, definition.get("TimeoutSeconds"))
        raise Failed(f"waited for {what}")

    def perform(self, service: str, operation: str, parameters: Record) -> Answer:
        """One operation."""
        own = getattr(self, f"_{operation}", None)
        if own:
            answer: Answer = own(parameters)
        elif service == "dynamodb":
            answer = self._perform_on_tables(operation, parameters)
        elif service == "sqs":
            self.queues, answer = sqs.perform(self.queues, operation, parameters, self.now)
        elif service == "glue":
            self.jobs, answer = glue.perform(self.jobs, operation, parameters, self.now)
        elif service == "scheduler":
            self.schedules, answer = scheduler.perform(self.schedules, operation, parameters, self.now)
        else:
            answer = self._perform_on_executions(operation, parameters)
        return answer

    # ------------------------------------------------------------------------------------- DynamoDB, SQS, Glue

    def _perform_on_tables(self, operation: str, parameters: Record) -> Answer:
        name = operation.title().replace("_", "")
        if name in self._conflicts:
            self._conflicts.remove(name)
            return dynamodb.conflict(operation, parameters)
        self.tables, answer = dynamodb.perform(self.tables, operation, parameters)
        return answer

    def _create_queue(self, parameters: Record) -> Answer:
        url, attributes = parameters["QueueName"], parameters.get("Attributes", record({}))
        made = sqs.queue(int(attributes.get("VisibilityTimeout", 30)), attributes.get("FifoQueue") == "true")
        self.queues = self.queues.with_fields(**{url: made})
        return Answer(freeze({"QueueUrl": url}))

    def _receive_message(self, parameters: Record) -> Answer:
        url, most = parameters["QueueUrl"], parameters.get("MaxNumberOfMessages", 1)
        taken = []
        for message in sqs.receivable(self.queues[url], self.now, together=most > 1)[:most]:
            queue, answer = sqs.receive(self.queues[url], message, self.now)
            self.queues = self.queues.with_fields(**{url: queue})
            (received,) = answer.value["Messages"]
            taken.append({"Body": received["body"], "ReceiptHandle": received["handle"]})
        return Answer(freeze({"Messages": taken} if taken else {}))

    def _create_job(self, parameters: Record) -> Answer:
        jobs = glue.jobs(**{parameters["Name"]: parameters["ExecutionProperty"]["MaxConcurrentRuns"]})
        self.jobs = record(self.jobs.fields | jobs.fields)
        return Answer(freeze({"Name": parameters["Name"]}))

    # --------------------------------------------------------------------------------------- Step Functions

    def _create_state_machine(self, parameters: Record) -> Answer:
        arn = MACHINES + parameters["name"]
        self.machines[arn], self.executions[arn] = json.loads(parameters["definition"]), stepfunctions.executions()
        return Answer(freeze({"stateMachineArn": arn}))

    def _perform_on_executions(self, operation: str, parameters: Record) -> Answer:
        self.now += 1  # no two calls have the same time
        if "taskToken" in parameters:
            return self._answer_task(operation, parameters)
        arn = parameters.get("executionArn", "")
        machine = parameters.get("stateMachineArn") or arn.rpartition(":")[0].replace(":execution:", ":stateMachine:")
        name, before = parameters.get("name") or arn.rpartition(":")[2], self.executions[machine]
        self.executions[machine], answer = stepfunctions.perform(before, operation, parameters, self.now)
        if self.executions[machine] is before:
            return answer
        if operation == "stop_execution":
            for token, execution in self._waiting.items():
                if execution == (machine, name):
                    self.tokens = tasks.end(self.tokens, token)
        else:
            self._run(machine, name)
        return answer

    def _answer_task(self, operation: str, parameters: Record) -> Answer:
        token = parameters["taskToken"]
        self.tokens, answer = tasks.perform(self.tokens, operation, parameters, self.now)
        status = self.tokens[token]["status"]
        if not answer.error and status != "WAITS":
            self._close(*self._waiting[token], status)
        return answer

    def _close(
        self, machine: str, name: str, status: str, error: str = "", cause: str = "", output: Any = None
    ) -> None:
        closed = stepfunctions.close(self.executions[machine], name, status, self.now, error, cause)
        self.executions[machine] = closed.with_fields(**{name: closed[name].with_fields(output=json.dumps(output))})

    def _time_out(self, machine: str, seconds: float | None) -> None:
        for name, execution in self.executions[machine].fields.items():
            if seconds and execution["status"] == "RUNNING" and self.now >= execution["started"] + seconds:
                self._close(machine, name, "TIMED_OUT")

    def _run(self, machine: str, name: str) -> None:
        """Run an execution until it waits or ends."""
        definition = self.machines[machine]
        at, variables = definition["StartAt"], dict[str, Any]()
        known: dict[str, Any] = {"input": json.loads(self.executions[machine][name]["input"])}
        try:
            while True:
                fields = definition["States"][at]
                kind, state = fields["Type"], State(fields)
                if kind == "Wait" or fields.get("Resource", "").endswith(".waitForTaskToken"):
                    self._wait_for(fields, machine, name)
                    return
                if kind == "Fail":
                    self._close(machine, name, "FAILED", fields["Error"], fields.get("Cause", ""))
                    return
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
                    self._close(machine, name, "SUCCEEDED", output=output)
                    return
                at = fields["Next"]
        except StateFailed as failed:
            self._close(machine, name, "FAILED", failed.error, failed.cause or "")

    def _wait_for(self, fields: dict[str, Any], machine: str, name: str) -> None:
        if fields["Type"] == "Task":
            token, asked = self.name("token"), fields["Arguments"]
            self.tokens, self._waiting[token] = record(self.tokens.fields | tasks.tasks(token).fields), (machine, name)
            body = dict.fromkeys(asked["MessageBody"], token)
            self.perform(
                "sqs", "send_message", freeze({"QueueUrl": asked["QueueUrl"], "MessageBody": json.dumps(body)})
            )

    def _result(self, fields: dict[str, Any]) -> Any:
        """The result of a task that reads DynamoDB, or of any other state."""
        if fields["Type"] != "Task":
            return None
        result = thaw(self._perform_on_tables("get_item", freeze(fields["Arguments"])).value)
        if len(json.dumps(result)) > LARGEST_RESULT:
            raise StateFailed("States.DataLimitExceeded", "")
        return result


class _SimulatedClient:
    def __init__(self, account: SimulatedAccount, service: str) -> None:
        self._account, self._service = account, service

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def call(**parameters: Any) -> Any:
            answer = self._account.perform(self._service, operation, freeze(parameters))
            if answer.error:
                response: Any = {"Error": {"Code": answer.error, "Message": "simulated"}}
                raise ClientError(response | (thaw(answer.value) or {}), operation)
            return thaw(answer.value)

        return call
