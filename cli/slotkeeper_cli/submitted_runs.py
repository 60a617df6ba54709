"""The runs of submitted requests. A request of the same process and id does not run again within 90 days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from slotkeeper.slots.executions import Execution, Workflow, failure_reason
from slotkeeper.slots.request import Request
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.request_fields import fields_in


@dataclass(frozen=True)
class Run:
    """The last known attempt of a request, and its execution; None if it has not started."""

    request: Request
    execution: Execution | None = None

    @property
    def status(self) -> str:
        """The status of the execution; `not started` without one."""
        return self.execution.status if self.execution else "not started"

    @property
    def was_returned(self) -> bool:
        """Whether the workflow has returned the request to the queue, as its next attempt."""
        return self.execution is not None and self.execution.error == "RequestReturned"

    @property
    def has_ended(self) -> bool:
        """Whether the request has ended, with or without success."""
        return self.execution is not None and self.execution.is_closed and not self.was_returned

    @property
    def has_failed(self) -> bool:
        """Whether the request has ended without success."""
        return self.has_ended and self.status != "SUCCEEDED"

    @property
    def reason(self) -> str:
        """Why the attempt failed; "" if it did not."""
        return failure_reason(self.execution.cause) if self.execution else ""

    @property
    def differences(self) -> list[str]:
        """The fields in which the executed request differs; if there are any, another request has used the id."""
        if self.execution is None:
            return []
        executed, submitted = fields_in(self.execution.input), fields_in(self.request.to_json())
        return sorted(name for name in {**executed, **submitted} if executed.get(name) != submitted.get(name))

    def as_dict(self) -> dict[str, Any]:
        """The outcome as JSON shows it."""
        error, cause = (self.execution.error, self.execution.cause) if self.execution else ("", "")
        return {"status": self.status, "error": error or None, "cause": cause or None, "reason": self.reason or None}


def read_runs(workflow: Workflow, runs: Sequence[Run]) -> list[Run]:
    """Read the execution of each attempt."""
    executions = in_parallel(lambda one: workflow.describe(one.request.execution_name), runs)
    return [Run(one.request, execution) for one, execution in zip(runs, executions, strict=True)]


def last_attempt(workflow: Workflow, run: Run) -> Run:
    """The last attempt: a returned request has a next one, a failed request only if it was redriven."""
    while run.was_returned or run.has_failed:
        again = Run(replace(run.request, attempt=run.request.attempt + 1))
        (read,) = read_runs(workflow, [again])
        if read.execution is None:
            return again if run.was_returned else run
        run = read
    return run
