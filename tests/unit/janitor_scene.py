"""What the janitor meets: an execution that took a slot, and Glue as a list of its runs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from slotkeeper.slots.request import execution_name
from tests.unit.conftest import NOW, Account, delivery


class JanitorScene:
    """One process with one slot, an execution that took it, and Glue as a list of its runs."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.runs: list[dict[str, Any]] = []
        self.stopped: list[str] = []
        self.job_exists = True
        self.older_runs: list[dict[str, Any]] = []
        self.checked_at: list[float] = []
        self.check_takes = 0.0
        self.stopping_is_denied = False
        self.endless = False  # every page of runs has another
        self.execution = execution_name("p", "order-1", 1)
        account.glue.meta.events.register("before-call.glue.GetJobRuns", self._get_job_runs)
        account.glue.meta.events.register("before-call.glue.BatchStopJobRun", self._batch_stop)

    def _get_job_runs(self, params: Any, **_: Any) -> Any:
        if not self.job_exists:
            return http(400), {"Error": {"Code": "EntityNotFoundException", "Message": "no such job"}}
        self.checked_at.append(self.account.now)
        self.account.now += self.check_takes
        page = json.loads(params["body"]).get("NextToken", "")
        if self.endless:
            return http(200), {"JobRuns": self.runs, "NextToken": f"{page}+"}
        if page:
            return http(200), {"JobRuns": self.older_runs}
        return http(200), {"JobRuns": self.runs} | ({"NextToken": "older"} if self.older_runs else {})

    def _batch_stop(self, params: Any, **_: Any) -> Any:
        if self.stopping_is_denied:
            return http(400), {"Error": {"Code": "AccessDeniedException", "Message": "not yours"}}
        self.stopped += json.loads(params["body"])["JobRunIds"]
        return http(200), {}

    def start(self) -> None:
        self.account.starter.admit(delivery({"process": "p", "request_id": "order-1"}), NOW)
        self.confirm()

    def start_execution(self) -> None:
        """Without the confirm that follows."""
        given = '{"process": "p", "request_id": "order-1", "attempt": 1}'
        self.account.stepfunctions.start_execution(
            stateMachineArn=self.account.workflow_arn, name=self.execution, input=given
        )

    def confirm(self) -> None:
        """As the workflow does it."""
        self.account.dynamodb.update_item(
            TableName=self.account.slot_table,
            Key={"process_name": {"S": "p"}},
            UpdateExpression="SET holders.#me.#state = :running, holders.#me.job = job_name",
            ExpressionAttributeNames={"#me": self.execution, "#state": "state"},
            ExpressionAttributeValues={":running": {"S": "RUNNING"}},
        )

    def abort(self, at: float = NOW) -> None:
        """Closes the execution; moto's clock is the real one, so the time it tells is put in place here."""
        arn = self.account.workflow_arn.replace(":stateMachine:", ":execution:") + ":" + self.execution
        self.account.stepfunctions.stop_execution(executionArn=arn)

        self._stopped_at, self._redrives = at, 0
        self.account.stepfunctions.meta.events.register("after-call.stepfunctions", self._tell)

    def abort_again(self, at: float) -> None:
        """As after a redrive, which moto does not have."""
        self._stopped_at, self._redrives = at, self._redrives + 1

    def _tell(self, parsed: Any, **_: Any) -> None:
        for execution in [parsed, *parsed.get("executions", [])]:
            if "startDate" in execution:
                execution |= {"startDate": datetime.fromtimestamp(NOW, UTC), "redriveCount": self._redrives}
            if execution.get("stopDate"):
                execution["stopDate"] = datetime.fromtimestamp(self._stopped_at, UTC)

    def run(self, state: str, run_id: str = "jr_1") -> None:
        self.runs = [
            {
                "Id": run_id,
                "JobRunState": state,
                "StartedOn": datetime.fromtimestamp(NOW, UTC),
                "Arguments": {"--slotkeeper-execution": self.execution},
            }
        ]


def http(status: int) -> Any:
    class Answer:
        status_code = status

    return Answer()
