"""A process with a holder, for the tests of the janitor: of a Glue job, or of a child execution."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from slotkeeper.slots.request import caller_of, execution_name
from slotkeeper.slots.work import PARENT_FIELD
from tests.unit.conftest import NOW, Account

TARGET = "arn:aws:states:us-east-1:123456789012:stateMachine:nightly"
REQUEST = {"process": "p", "request_id": "order-1", "input": {"day": "monday"}}


class JanitorScene:
    """A process with one slot, the execution that holds it, and the Glue job `job`.

    Args:
        token: of the caller that waits for the end of its request.
    """

    def __init__(self, account: Account, token: str = "") -> None:
        self.account = account
        self.request = REQUEST | ({"task_token": token} if token else {})
        account.aws.make_job("job")
        self.stopped = account.aws.stopped
        self.checked_at: list[float] = []
        self.check_takes = 0.0
        self.stopping_is_denied = False
        self.endless = False  # each page of runs has a next page
        self._redrives = 0
        self.execution = execution_name("p", "order-1", 1, caller_of(token))
        account.glue.meta.events.register("before-call.glue", self._before_glue)

    def _before_glue(self, model: Any, context: Any, **_: Any) -> Any:
        if model.name == "BatchStopJobRun":
            denied = {"Error": {"Code": "AccessDeniedException", "Message": "not yours"}}
            return (http(400), denied) if self.stopping_is_denied else None
        self.checked_at.append(self.account.now)
        self.account.now += self.check_takes
        if self.endless:
            return http(200), {"JobRuns": [], "NextToken": context["parameters"].get("NextToken", "") + "+"}
        return None

    def start(self, at: float = NOW) -> None:
        self.account.now = at
        self.reserve()
        self.account.confirm(self.execution)

    def reserve(self) -> None:
        """Queue the request and start its execution, without its confirm."""
        self.account.accept(self.request)
        assert self.execution in self.account.dispatch().started

    def abort(self, at: float = NOW) -> None:
        """Abort the execution."""
        self.account.aws.execution(self.execution, "ABORTED", stopped=at)

    def end_again(self, at: float) -> None:
        """End the execution again, as after a redrive."""
        self._redrives += 1
        self.account.aws.execution(self.execution, stopped=at, redrives=self._redrives)

    def close(self, status: str, error: str = "", cause: str = "") -> None:
        """Let the workflow's execution have closed so, where it was aborted."""
        self.account.aws.execution(self.execution, status, error=error, cause=cause)

    def release(self, outcome: str = "FAILED") -> None:
        """Record the outcome and free the slot, as the workflow does."""
        self.account.record(self.execution, outcome)
        self.account.free(self.execution)

    def run(self, state: str, started: float = NOW) -> None:
        """The holder's run is now in this state; Glue has no other one."""
        self.account.aws.make_job("job")
        self.account.aws.run_job("job", state, {"--slotkeeper-execution": self.execution}, started=started)


class ChildScene(JanitorScene):
    """The scene of the janitor, with child executions of other state machines than the workflow.

    Attributes:
        stops: the ARNs that were stopped. A stopped child closes unless `stopping_takes_long`.
        calls: the operations on other state machines, with their ARNs.
        refused: the ARN of a state machine for which each call is denied.
    """

    def __init__(self, account: Account, token: str = "", **settings: Any) -> None:
        super().__init__(account, token)
        self.stops: list[str] = []
        self.calls: list[tuple[str, str]] = []
        self.stopping_takes_long = False
        self.refused = ""
        account.aws.make_machine(TARGET)
        account.write("target", {"S": TARGET})
        account.write("run_settings", {"M": {name: {"N": str(value)} for name, value in settings.items()}})
        for operation in ("DescribeExecution", "StopExecution", "ListExecutions"):
            account.stepfunctions.meta.events.register_first(f"before-call.stepfunctions.{operation}", self._note)

    def _note(self, model: Any, context: Any, **_: Any) -> Any:
        given = context["parameters"]
        arn = given.get("executionArn") or given["stateMachineArn"]
        workflow = self.account.workflow_arn
        if arn.startswith((workflow, workflow.replace(":stateMachine:", ":execution:"))):
            return None
        self.calls.append((model.name, arn))
        if self.refused and self.refused.rpartition(":")[2] in arn.split(":"):
            return http(400), {"Error": {"Code": "AccessDeniedException", "Message": "not permitted"}}
        if model.name == "StopExecution":
            self.stops.append(arn)
            return (http(200), {}) if self.stopping_takes_long else None
        return None

    def child(self, status: str, /, at: float = NOW, name: str = "", target: str = TARGET, **changes: Any) -> None:
        """Set the child execution of a holder. `at`: when it closed. `changes`: other fields than usual."""
        name = name or self.execution
        started_by = {"day": "monday", PARENT_FIELD: self.account.execution_arn(name)}
        usual = {"status": status, "started": NOW, "input": json.dumps(started_by), "redrives": 0, "output": None}
        usual["stopped"] = 0 if (usual | changes)["status"] == "RUNNING" else at
        self.account.aws.execution(name, machine=target, **usual | changes)

    def no_child(self) -> None:
        """Step Functions knows no child execution."""
        self.account.aws.make_machine(TARGET)


def http(status: int) -> Any:
    return SimpleNamespace(status_code=status)
