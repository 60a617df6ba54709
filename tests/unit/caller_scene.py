"""A request with a caller that waits for the answer, for the tests of the starter and of the janitor."""

from __future__ import annotations

import json
from typing import Any

from slotkeeper.slots.request import caller_of, execution_name
from tests.unit.child_scene import ChildScene
from tests.unit.conftest import NOW, Account, delivery
from tests.unit.janitor_scene import http

TOKEN = "AAAA-the-token-of-the-caller"
REQUEST = {"process": "p", "request_id": "order-1", "input": {"day": "monday"}}


class CallerScene(ChildScene):
    """The scene of a child execution, whose request has a task token.

    Attributes:
        answers: the answers that callers received: token, then output, or error and cause.
        refusal: the error code with which Step Functions refuses answers; "" for none.
        history: the events of the workflow's execution.
        seen: what the table and the queue contained when an answer was given: holder's state, number of kept requests.
    """

    def __init__(self, account: Account, **settings: Any) -> None:
        self.answers: list[tuple[str, ...]] = []
        self.refusal = ""
        self.history: list[dict[str, Any]] = []
        self.history_fails = False
        self.reads_of_history = 0
        self.seen: list[tuple[bool, int]] = []
        super().__init__(account, **settings)
        self.execution = execution_name("p", "order-1", 1, caller_of(TOKEN))

    def answer_calls_of(self, client: Any) -> None:
        super().answer_calls_of(client)
        events = client.meta.events
        events.register("before-call.stepfunctions.SendTaskSuccess", self._receive)
        events.register("before-call.stepfunctions.SendTaskFailure", self._receive)
        events.register("before-call.stepfunctions.GetExecutionHistory", self._read_history)

    def _receive(self, params: Any, **_: Any) -> Any:
        given = json.loads(params["body"])
        kept = len(self.account.messages(self.account.failed_url))
        self.seen.append((self.execution in self.account.item().holders, kept))
        if self.refusal:
            # The message of a real error may repeat the token.
            return http(400), {"Error": {"Code": self.refusal, "Message": f"refused {given['taskToken']}"}}
        self.answers.append(tuple(given.values()))
        return http(200), {}

    def _read_history(self, params: Any, **_: Any) -> Any:
        self.reads_of_history += 1
        if self.history_fails:
            return http(400), {"Error": {"Code": "ThrottlingException", "Message": "slow down"}}
        asked = json.loads(params["body"])
        events = self.history[::-1] if asked["reverseOrder"] else self.history
        return http(200), {"events": events[: asked["maxResults"]]}

    def start(self, at: float = NOW) -> None:
        self.account.starter.admit(delivery(REQUEST | {"task_token": TOKEN}), at)
        self.account.confirm(self.execution)

    def release(self) -> None:
        """Free the slot, as the workflow does before it answers. Its history contains the token that it has read."""
        holder = self.account.item().holders[self.execution]
        self.account.slots.release("p", self.execution, holder.raw)
        read = {"Item": {"holders": {"M": {self.execution: {"M": {"task_token": {"S": TOKEN}}}}}}}
        self.history = [
            {"type": "ExecutionStarted"},
            {"taskSucceededEventDetails": {"output": '{"Attributes": {}}'}},
            {"taskSucceededEventDetails": {"output": json.dumps(read)}},
        ]

    def could_not_answer(self, cause: str, **parameters: str) -> None:
        """Let the workflow have ended as AnswerFailed. `parameters`: of the call that failed."""
        self.release()
        scheduled = {"taskScheduledEventDetails": {"parameters": json.dumps({"TaskToken": TOKEN} | parameters)}}
        asked = {"taskScheduledEventDetails": {"parameters": json.dumps({"TaskToken": TOKEN})}}
        self.history += [asked, scheduled, {"taskFailedEventDetails": {"error": "Sfn.ThrottlingException"}}]
        self.fail("AnswerFailed", cause)

    def fail(self, error: str, cause: str) -> None:
        """Let the workflow's execution have failed with this error, where it was aborted."""

        def failed(parsed: Any, **_: Any) -> None:
            if parsed.get("executionArn", "").endswith(f":workflow:{self.execution}"):
                parsed.update(status="FAILED", error=error, cause=cause)

        self.account.stepfunctions.meta.events.register("after-call.stepfunctions.DescribeExecution", failed)
