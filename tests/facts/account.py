"""The account of a row: clients, unique names, waits, and the removal of what the row has created."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from tests.facts.facts import EMBEDDED, REAL, Failed, NotShown, is_denied

if TYPE_CHECKING:
    from tests.facts.stack import StackUnderTest

ANY_ROLE = "arn:aws:iam::000000000000:role/any"  # the embedded AWS uses none
ENDED = ("SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED")
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Timings:
    """Seconds.

    start: longest wait until AWS has done what it does immediately, or a run of a job is alive.
    finish: longest wait for a workflow after its run has ended, with its checks of Glue.
    poll: between two reads.
    settle: until a new role or rule works, and until a count of a queue is right.
    hold: how long a job runs while another request waits for its slot.
    long: how long a job would run that the check stops.
    task_timeout: the Glue task's timeout in the check of it; longer than Glue takes to start a run.
    due: from now to a schedule's time.
    """

    start: float = 60
    finish: float = 180
    poll: float = 0.05
    settle: float = 0
    hold: float = 8
    long: float = 60
    task_timeout: int = 2
    due: float = 2


# A Python shell run takes about ten to sixty seconds to start. A workflow's checks are up to 60 s apart by default. A
# new role works some seconds later (IAM guide, "Troubleshoot IAM"), and so does a rule (API Reference, PutRule).
IN_AWS = Timings(start=180, finish=300, poll=1, settle=20, hold=25, long=420, task_timeout=90, due=75)

# A creating call -> the call that removes what it creates, and that one's parameters, which are parameters of the first
# one, or in its answer, or derived (_Client). An execution, and those of a state machine, are stopped first.
REMOVALS = {
    "create_queue": ("delete_queue", "QueueUrl"),
    "create_table": ("delete_table", "TableName"),
    "create_state_machine": ("delete_state_machine", "stateMachineArn"),
    "start_execution": ("stop_execution", "executionArn"),
    "create_role": ("delete_role", "RoleName"),
    "put_role_policy": ("delete_role_policy", "RoleName PolicyName"),
    "put_rule": ("delete_rule", "Name"),
    "put_targets": ("remove_targets", "Rule Ids"),
    "create_topic": ("delete_topic", "TopicArn"),
    "create_job": ("delete_job", "JobName"),
    "start_job_run": ("batch_stop_job_run", "JobName JobRunIds"),
    "create_schedule": ("delete_schedule", "Name GroupName"),
    "create_event_source_mapping": ("delete_event_source_mapping", "UUID"),
    "create_function": ("delete_function", "FunctionName"),
}
# In the error of a removal, if the row, or AWS after the row, has removed it.
_GONE = ("NotFound", "NonExistentQueue", "DoesNotExist", "NoSuchEntity")


class Account:
    """The embedded AWS or a real account, for one row.

    Args:
        make_client: returns the client of a service.
        run: the beginning of each name.
        timings: how long to wait.
        role: the role of state machines.
        stack: the deployed stack, if there is one.
        conflict: lets the next call of an operation, named as in the API, meet a transaction.
        stopped: set when the user interrupts the run.
    """

    def __init__(
        self,
        make_client: Callable[[str], Any],
        run: str = "row",
        *,
        timings: Timings | None = None,
        role: str = ANY_ROLE,
        stack: StackUnderTest | None = None,
        conflict: Callable[[str], object] | None = None,
        stopped: Event | None = None,
    ) -> None:
        self.run, self.timings, self.role = run, timings or Timings(), role
        self.place = REAL if stack and not stack.local else EMBEDDED
        self.stopped = stopped or Event()
        self.undo: list[tuple[str, Callable[[], object]]] = []  # what was created: its name, and how to remove it
        self._make_client, self._stack, self._conflict = make_client, stack, conflict

    @property
    def stack(self) -> StackUnderTest:
        """The deployed stack. Raises NotShown if there is none."""
        if self._stack is None:
            raise NotShown("there is no deployed stack")
        return self._stack

    @property
    def has_stack(self) -> bool:
        """Whether there is a deployed stack."""
        return self._stack is not None

    @property
    def account_id(self) -> str:
        """The account's number."""
        return self._stack.outputs["WorkflowArn"].split(":")[4] if self._stack else "000000000000"

    def client(self, service: str) -> Any:
        """The client of a service. What it creates is removed by `clean_up`."""
        return _Client(self._make_client(service), self.undo)

    def name(self, stem: str) -> str:
        """A name that no other row uses."""
        return f"{self.run}-{next(_numbers)}-{stem}"

    def conflict(self, operation: str) -> None:
        """Let the next call of this operation, named as in the API, meet a transaction."""
        assert self._conflict, f"{operation} meets no transaction in a real account"
        self._conflict(operation)

    def wait[Value](self, condition: Callable[[], Value], what: str, seconds: float = 0) -> Value:
        """Call `condition` until its value is true, and return that value.

        Raises:
            Failed: it did not become true within `seconds`, or within the longest start.
            NotShown: the user interrupted the run.
        """
        began, longest = time.monotonic(), seconds or self.timings.start
        while not (value := condition()):
            if time.monotonic() - began > longest:
                raise Failed(f"waited {longest:.0f} s for {what}; the last value was {value!r}")
            if self.stopped.wait(self.timings.poll):
                raise NotShown("interrupted")
        return value

    def clean_up(self) -> list[str]:
        """Remove what was created, the newest first. Return a line for each thing that is left."""
        left = []
        while self.undo:
            what, remove = self.undo.pop()
            try:
                remove()
            except Exception as error:  # the rest is still removed
                code = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
                if not any(each in code for each in _GONE):
                    left.append(f"{what}: {error}")
        return left


class _Client:
    """A client whose creating calls are noted, with how to remove what they create."""

    def __init__(self, client: Any, undo: list[tuple[str, Callable[[], object]]]) -> None:
        self._client, self._undo = client, undo

    def __getattr__(self, operation: str) -> Any:
        method = getattr(self._client, operation)
        if operation not in REMOVALS:
            return method
        remover, names = REMOVALS[operation]

        def note(known: dict[str, Any]) -> None:
            parameters = {name: known[name] for name in names.split()}
            self._undo.append((f"{remover} {parameters}", lambda: self._remove(remover, parameters)))

        def create(**asked: Any) -> Any:
            known = {"JobName": asked.get("Name"), "Ids": [each["Id"] for each in asked.get("Targets", [])]} | asked
            is_known = known.keys() >= {*names.split()}
            if is_known:  # before the call, whose answer may be lost
                note(known)
            try:
                answer = method(**asked)
            except ClientError as error:
                if is_known and is_denied(error):
                    self._undo.pop()
                raise
            if not is_known:
                note(known | {"JobRunIds": [answer.get("JobRunId")]} | answer)
            return answer

        return create

    def _remove(self, remover: str, parameters: dict[str, Any]) -> None:
        if remover == "delete_state_machine":
            running = self._client.list_executions(**parameters, statusFilter="RUNNING")["executions"]
            for each in running:
                self._remove("stop_execution", {"executionArn": each["executionArn"]})
        if remover == "delete_table":
            while self._client.describe_table(**parameters)["Table"]["TableStatus"] == "CREATING":
                time.sleep(1)
        if remover == "stop_execution" and self._client.describe_execution(**parameters)["status"] in ENDED:
            return
        getattr(self._client, remover)(**parameters)
