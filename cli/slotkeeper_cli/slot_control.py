"""The slot protocol on a stack: commands change slots and processes by the same writes as the functions."""

from __future__ import annotations

from collections.abc import Iterable

from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper.slots.processes import Operations, Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queues import RequestQueue
from slotkeeper.slots.work import Children, GlueRuns
from slotkeeper_cli.errors import CommandFailed, NotFound
from slotkeeper_cli.stack_connection import StackConnection


class SlotControl:
    """The layer's objects for slots, made for a stack's table, queue and state machine."""

    def __init__(self, stack: StackConnection) -> None:
        table, dynamodb = stack.outputs["SlotTableName"], stack.client("dynamodb")
        self.processes = Processes(dynamodb, table)
        self.slots = Slots(dynamodb, table)
        self.queue = RequestQueue(stack.client("sqs"), stack.outputs["RequestQueueUrl"])
        self.operations = Operations(self.processes, self.slots, self.queue)
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
                f"the item of process {name!r} in SlotTable is malformed: {error}. Repair it first: slotkeeper process "
                f"repair {name}"
            ) from error
        if process is None:
            raise self.not_found(name)
        return process

    def not_found(self, name: str) -> NotFound:
        """The error for a process that does not exist. It names those that do."""
        processes, malformed = self.read_all()
        names = sorted([one.name for one in processes] + [f"{one.process} (malformed)" for one in malformed])
        return NotFound(f"there is no process {name!r}. The processes are: {', '.join(names) or 'none'}")

    def read_all(self) -> tuple[list[Process], list[MalformedProcess]]:
        """The processes, ordered by name, and an error for each malformed item, whose process is not known further."""
        read = list(self.processes.all())
        processes = sorted((one for one in read if isinstance(one, Process)), key=lambda one: one.name)
        malformed = sorted((one for one in read if isinstance(one, MalformedProcess)), key=lambda one: one.process)
        return processes, malformed


def repair_texts(malformed: Iterable[MalformedProcess]) -> list[str]:
    """For each malformed process, what is wrong and the command that repairs it."""
    return [f"{one}. Repair it: slotkeeper process repair {one.process}" for one in malformed]
