"""A process whose target is a state machine, with a holder and its child execution, for the tests of the janitor."""

from __future__ import annotations

import json
from typing import Any

from slotkeeper.slots.targets import execution_arn
from slotkeeper.slots.work import PARENT_FIELD
from tests.unit.conftest import NOW, Account
from tests.unit.janitor_scene import JanitorScene, http

TARGET = "arn:aws:states:us-east-1:123456789012:stateMachine:nightly"


class ChildScene(JanitorScene):
    """The scene of the janitor, with the executions of other state machines than the workflow as a dictionary.

    Attributes:
        children: execution ARN -> DescribeExecution's answer.
        stops: the ARNs that were stopped. A stopped child closes unless `stopping_takes_long`.
        calls: the operations on other state machines, with their ARNs.
        refused: the ARN of a state machine for which each call is denied.
    """

    def __init__(self, account: Account, **settings: Any) -> None:
        super().__init__(account)
        self.children: dict[str, dict[str, Any]] = {}
        self.stops: list[str] = []
        self.calls: list[tuple[str, str]] = []
        self.stopping_takes_long = False
        self.refused = ""
        account.write("target", {"S": TARGET})
        account.write("run_settings", {"M": {name: {"N": str(value)} for name, value in settings.items()}})
        self.answer_calls_of(account.stepfunctions)

    def answer_calls_of(self, client: Any) -> None:
        """Answer the calls of a client of Step Functions; moto answers those on the workflow's executions."""
        for operation in ("DescribeExecution", "StopExecution", "ListExecutions"):
            client.meta.events.register_first(f"before-call.stepfunctions.{operation}", self._answer)

    def _answer(self, model: Any, params: Any, **_: Any) -> Any:
        given = json.loads(params["body"])
        arn = given.get("executionArn") or given["stateMachineArn"]
        workflow = self.account.workflow_arn
        if arn.startswith((workflow, workflow.replace(":stateMachine:", ":execution:"))):
            return None
        self.calls.append((model.name, arn))
        if self.refused and self.refused.rpartition(":")[2] in arn.split(":"):
            return http(400), {"Error": {"Code": "AccessDeniedException", "Message": "not permitted"}}
        if model.name == "ListExecutions":
            # With a state machine's ARN redriveFilter is an error (API Reference, ListExecutions).
            assert (given["statusFilter"], "redriveFilter" in given) == ("RUNNING", False)
            prefix = arn.replace(":stateMachine:", ":execution:") + ":"
            listed = [child for of, child in self.children.items() if of.startswith(prefix)]
            return http(200), {"executions": [c for c in listed if c["status"] == "RUNNING"]}
        child = self.children.get(arn)
        if child is None:
            return http(400), {"Error": {"Code": "ExecutionDoesNotExist", "Message": "no such execution"}}
        if model.name == "StopExecution":
            self.stops.append(arn)
            if not self.stopping_takes_long:
                child |= {"status": "ABORTED", "stopDate": _Moment(self.account.now)}
            return http(200), {}
        return http(200), dict(child)

    def _set_dates(self, parsed: Any, **more: Any) -> None:
        described = [parsed, *parsed.get("executions", [])]
        if not any(each.get("executionArn") in self.children for each in described):
            super()._set_dates(parsed, **more)

    def child(self, status: str, /, at: float = NOW, name: str = "", target: str = TARGET, **changes: Any) -> None:
        """Set the child execution of a holder. `at`: when it closed. `changes`: of DescribeExecution's answer."""
        name = name or self.execution
        arn = execution_arn(target, name)
        answer = {
            "executionArn": arn,
            "name": name,
            "status": status,
            "startDate": _Moment(NOW),
            "input": json.dumps({"day": "monday", PARENT_FIELD: self.account.execution_arn(name)}),
            "redriveCount": 0,
        }
        if status != "RUNNING":
            answer["stopDate"] = _Moment(at)
        self.children[arn] = answer | changes

    def no_child(self) -> None:
        """Step Functions knows no child execution."""
        self.children.clear()


class _Moment:
    """A time as botocore parses it, as far as the code uses it."""

    def __init__(self, at: float) -> None:
        self._at = at

    def timestamp(self) -> float:
        return self._at
