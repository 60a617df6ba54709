"""The slot protocol on a stack: commands change slots and processes by the same writes as the functions."""

from __future__ import annotations

from slotkeeper.slots.children import Children
from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.glue import GlueRuns
from slotkeeper.slots.operations import Operations
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queues import RequestQueue
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
                f"the item of process {name!r} in SlotTable is malformed: {error}. Correct the attribute first "
                "(docs/runbooks.md, MalformedProcessAlarm)"
            ) from error
        if process is None:
            raise NotFound(f"there is no process {name!r}. The processes are: {', '.join(self.names()) or 'none'}")
        return process

    def read_all(self) -> tuple[list[Process], list[MalformedProcess]]:
        """The processes, ordered by name, and the error of each malformed item."""
        read = list(self.processes.all())
        processes = sorted((one for one in read if isinstance(one, Process)), key=lambda one: one.name)
        return processes, [one for one in read if isinstance(one, MalformedProcess)]

    def names(self) -> list[str]:
        """The names of the processes, in order. Malformed items are left out."""
        return [process.name for process in self.read_all()[0]]
