"""The layer's retries on a stack: its ledger, its work queue, and its schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from slotkeeper.retry.delivery import RetryQueue, ScheduleTarget
from slotkeeper.retry.ledger import Ledger
from slotkeeper.retry.operations import RetryOperations
from slotkeeper_cli.stack_connection import StackConnection


class RetryControl:
    """The parts, wired to a stack."""

    def __init__(self, stack: StackConnection) -> None:
        self._scheduler, self._group = stack.client("scheduler"), stack.outputs["RetryScheduleGroupName"]
        sqs, url = stack.client("sqs"), stack.outputs["WorkQueueUrl"]
        attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn", "MaximumMessageSize"])[
            "Attributes"
        ]
        # Nothing is scheduled here, so the role and the dead-letter queue of schedules are not needed.
        schedules = ScheduleTarget(self._group, "", attributes["QueueArn"], "")
        queue = RetryQueue(
            sqs, self._scheduler, url, schedules, max_message_bytes=int(attributes.get("MaximumMessageSize", 1_048_576))
        )
        self._dynamodb, self._table = stack.client("dynamodb"), stack.outputs["RequestLedgerTableName"]
        self.ledger = Ledger(self._dynamodb, self._table)
        self.steps = RetryOperations(self.ledger, queue)

    def approximate_row_count(self) -> int:
        """About how many rows the ledger has: DynamoDB counts every six hours (API Reference, TableDescription)."""
        described = self._dynamodb.describe_table(TableName=self._table)["Table"]
        return int(described.get("ItemCount", 0))

    def schedule_names(self, on_page: Callable[[int], None] = lambda _names: None) -> Iterator[str]:
        """The names of all schedules of the group."""
        for page in self._scheduler.get_paginator("list_schedules").paginate(GroupName=self._group):
            on_page(len(page["Schedules"]))
            for one in page["Schedules"]:
                yield one["Name"]
