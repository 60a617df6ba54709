"""The slot protocol on a stack: commands change slots and processes by the same writes as the functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from slotkeeper.next_step import NextStep, ToFillIn, next_step
from slotkeeper.slots.doorbell import Doorbell
from slotkeeper.slots.ending_queue import EndingQueue
from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper.slots.processes import Operations, Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.request import process_of_execution
from slotkeeper.slots.request_table import RequestTable
from slotkeeper.slots.returns import Requeues
from slotkeeper.slots.rows import RequestRows
from slotkeeper.slots.work import Children, GlueRuns
from slotkeeper_cli.errors import CommandFailed, NotFound
from slotkeeper_cli.formatting import did_you_mean
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.row_search import RowSearch
from slotkeeper_cli.stack_connection import StackConnection

# A workflow uses its slot from one of the first of these states to the last. Outside of them it must not be adopted:
# - before the first it may have lost its reservation. It then ends without work; adopted, it would run its job although
#   another request has its slot.
# - after ReleaseSlot it only rings.
_RUNS = ("RunGlueJob", "RunStateMachine")
_CONFIRM, _RELEASE = "ConfirmSlot", "ReleaseSlot"
_NO_END = ("ExecutionStarted", "ExecutionRedriven")


class SlotControl:
    """The layer's objects for slots, made for a stack's tables, doorbell and state machine."""

    def __init__(self, stack: StackConnection) -> None:
        dynamodb = stack.client("dynamodb")
        table, request_table = stack.outputs["SlotTableName"], stack.outputs["RequestTableName"]
        self.processes = Processes(dynamodb, table)
        self.slots = Slots(dynamodb, table)
        self.requests = RequestTable(dynamodb, request_table, table)
        retention = int(stack.outputs["RequestRetentionDays"]) * 86400
        self.requeues = Requeues(dynamodb, request_table, table, retention)
        self.rows = RequestRows(dynamodb, request_table)
        self.row_search = RowSearch(dynamodb, request_table)
        self.doorbell = Doorbell(stack.client("sqs"), stack.outputs["DispatchQueueUrl"])
        self.ending_queue = EndingQueue(stack.client("sqs"), stack.outputs["EndingQueueUrl"])
        self.operations = Operations(self.processes, self.doorbell)
        self.workflow = Workflow(stack.client("stepfunctions"), stack.outputs["WorkflowArn"])
        self.glue = GlueRuns(stack.client("glue"))
        self.children = Children(stack.client("stepfunctions"))

    def process(self, name: str) -> Process:
        """A process, read consistently.

        Raises:
            NotFound: there is no process of this name.
            CommandFailed: its item is malformed; the text names the attribute.
        """
        try:
            process = self.slots.read(name)
        except MalformedProcess as error:
            raise CommandFailed(
                f"the item of process {name!r} in SlotTable is malformed: {error}. Repair it first: "
                + next_step("process repair", name)
            ) from error
        if process is None:
            raise self.not_found(name)
        return process

    def not_found(self, name: str) -> NotFound:
        """The error for a process that does not exist. It names those that do."""
        processes, malformed = self.read_all()
        names, unread = [one.name for one in processes], [one.process for one in malformed]
        known = ", ".join(sorted([*names, *(f"{each} (malformed)" for each in unread)])) or "none"
        return NotFound(f"{no_process(name, [*names, *unread])} The processes are: {known}")

    def read_all(self) -> tuple[list[Process], list[MalformedProcess]]:
        """The processes, ordered by name, and an error for each malformed item, whose process is not known further."""
        read = list(self.processes.all())
        processes = sorted((one for one in read if isinstance(one, Process)), key=lambda one: one.name)
        malformed = sorted((one for one in read if isinstance(one, MalformedProcess)), key=lambda one: one.process)
        return processes, malformed


def name_of(process: Process | MalformedProcess) -> str:
    """The name of a process, also of one whose item is malformed."""
    return process.name if isinstance(process, Process) else process.process


def no_process(name: str, known: Iterable[str]) -> str:
    """Sentences: there is no process of this name; the most similar of the known ones."""
    return f"there is no process {name!r}.{did_you_mean(name, known)}"


def add_command(name: str) -> NextStep:
    """The command that adds a process for requests, in which the operator fills in the target."""
    return next_step("process add", name, limit=1, target=ToFillIn("JOB_OR_ARN"))


def repair_texts(malformed: Iterable[MalformedProcess]) -> list[str]:
    """For each malformed process, its fault and the command that repairs it."""
    return [f"{one}. Repair it: {next_step('process repair', one.process)}" for one in malformed]


@dataclass(frozen=True)
class SlotlessExecution:
    """An execution that runs without a slot. `since` is in seconds since the epoch.

    `target` is what it runs, which may be an earlier one of its process; empty if its history has no name.
    """

    process: str
    execution: str
    since: float
    target: str = ""


def find_slotless_executions(
    stack: StackConnection, control: SlotControl, processes: Iterable[Process]
) -> list[SlotlessExecution]:
    """The executions of these processes that run without a slot, oldest first.

    The order of reads matters:
      1. List the running executions. An execution of a known holder needs no further check.
      2. Read the processes again: a request admitted after the first read holds a slot only in this one.
      3. Read the histories: they show the executions that had released their slot before step 2.
    """
    known = {process.name: process for process in processes}
    slotless = [
        listed
        for listed in _running(stack)
        if listed.process in known and listed.execution not in known[listed.process].holders
    ]
    fresh = {name: control.process(name) for name in {one.process for one in slotless}}
    slotless = [one for one in slotless if one.execution not in fresh[one.process].holders]
    targets = in_parallel(lambda one: _target_that_runs(stack, one.execution), slotless)
    found = [replace(one, target=target) for one, target in zip(slotless, targets, strict=True) if target is not None]
    return sorted(found, key=lambda one: one.since)


def _running(stack: StackConnection) -> Iterator[SlotlessExecution]:
    pages = stack.client("stepfunctions").get_paginator("list_executions")
    for page in pages.paginate(stateMachineArn=stack.outputs["WorkflowArn"], statusFilter="RUNNING"):
        for listed in page["executions"]:
            yield SlotlessExecution(
                process_of_execution(listed["name"]), listed["name"], listed["startDate"].timestamp()
            )


def _target_that_runs(stack: StackConnection, execution: str) -> str | None:
    """The target of an execution that is between _RUNS and ReleaseSlot; None for any other execution."""
    stepfunctions = stack.client("stepfunctions")
    pages = stepfunctions.get_paginator("get_execution_history")
    is_running, target = False, ""
    try:
        for page in pages.paginate(executionArn=stack.execution_arn(execution), reverseOrder=True):
            for event in page["events"]:
                entered, left = (event.get(f"state{each}EventDetails", {}) for each in ("Entered", "Exited"))
                has_ended = event["type"].startswith("Execution") and event["type"] not in _NO_END
                if entered.get("name") == _RELEASE or has_ended:
                    return None
                is_running |= entered.get("name") in _RUNS
                if left.get("name") == _CONFIRM:
                    target = _target_in(left.get("output", "{}"), execution)
    except stepfunctions.exceptions.ExecutionDoesNotExist:
        return None
    return target if is_running else None


def confirmed_target(stack: StackConnection, execution: str) -> str:
    """The target that an execution has confirmed; empty if the first events of its history do not state it."""
    arn = stack.execution_arn(execution)
    events = stack.client("stepfunctions").get_execution_history(executionArn=arn, maxResults=100)["events"]
    left = (event.get("stateExitedEventDetails", {}) for event in events)
    outputs = (each.get("output", "{}") for each in left if each.get("name") == _CONFIRM)
    return next((_target_in(output, execution) for output in outputs), "")


def _target_in(output: str, execution: str) -> str:
    """The target in the output of ConfirmSlot, which is DynamoDB's answer; empty if it has none."""
    holders = json.loads(output).get("Attributes", {}).get("holders", {}).get("M", {})
    return str(holders.get(execution, {}).get("M", {}).get("job", {}).get("S", ""))
