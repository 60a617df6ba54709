"""A process with a holder, for the tests of the janitor."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from slotkeeper.slots.request import execution_name
from tests.unit.conftest import NOW, Account, delivery


class JanitorScene:
    """A process with one slot, the execution that holds it, and Glue as a list of job runs."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.runs: list[dict[str, Any]] = []
        self.stopped: list[str] = []
        self.job_exists = True
        self.older_runs: list[dict[str, Any]] = []
        self.checked_at: list[float] = []
        self.check_takes = 0.0
        self.stopping_is_denied = False
        self.endless = False  # each page of runs has a next page
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
        self.account.confirm(self.execution)

    def start_execution(self) -> None:
        """Start the execution without its confirm."""
        given = '{"process": "p", "request_id": "order-1", "attempt": 1}'
        self.account.stepfunctions.start_execution(
            stateMachineArn=self.account.workflow_arn, name=self.execution, input=given
        )

    def abort(self, at: float = NOW) -> None:
        """Abort the execution, and replace the real times in moto's answers by the test's."""
        self.account.finish(self.execution)
        self._stopped_at, self._redrives = at, 0
        self.account.stepfunctions.meta.events.register("after-call.stepfunctions", self._set_dates)

    def abort_again(self, at: float) -> None:
        """Abort the execution again, as after a redrive, which moto does not have."""
        self._stopped_at, self._redrives = at, self._redrives + 1

    def _set_dates(self, parsed: Any, **_: Any) -> None:
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
    return SimpleNamespace(status_code=status)
