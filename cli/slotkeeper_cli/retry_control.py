"""The retry flow on a stack: its ledger, its queue and its schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from slotkeeper.retry.delivery import RetryQueue, ScheduleTarget
from slotkeeper.retry.ledger import Ledger
from slotkeeper.retry.operations import RetryOperations
from slotkeeper_cli.queue_attributes import queue_attributes
from slotkeeper_cli.stack_connection import StackConnection


def policy_text(stack: StackConnection) -> str | None:
    """The value of the retry policy's parameter; None if there is no such parameter."""
    ssm = stack.client("ssm")
    try:
        return str(ssm.get_parameter(Name=stack.outputs["RetryPolicyParameterName"])["Parameter"]["Value"])
    except ssm.exceptions.ParameterNotFound:
        return None


class RetryControl:
    """The layer's objects for retries, made for a stack's table, queue and schedule group."""

    def __init__(self, stack: StackConnection) -> None:
        self._scheduler, self._group = stack.client("scheduler"), stack.outputs["RetryScheduleGroupName"]
        sqs, url = stack.client("sqs"), stack.outputs["WorkQueueUrl"]
        attributes = queue_attributes(stack, "WorkQueue")
        # Commands create no schedules, so the role and the dead-letter queue of schedules are not needed.
        schedules = ScheduleTarget(self._group, "", attributes["QueueArn"], "")
        max_bytes = int(attributes.get("MaximumMessageSize", 1_048_576))
        queue = RetryQueue(sqs, self._scheduler, url, schedules, max_message_bytes=max_bytes)
        self._dynamodb, self._table = stack.client("dynamodb"), stack.outputs["RequestLedgerTableName"]
        self.ledger = Ledger(self._dynamodb, self._table)
        self.steps = RetryOperations(self.ledger, queue)

    def approximate_row_count(self) -> int:
        """The number of rows; DynamoDB counts them every six hours (API Reference, TableDescription)."""
        described = self._dynamodb.describe_table(TableName=self._table)["Table"]
        return int(described.get("ItemCount", 0))

    def schedule_names(self, on_page: Callable[[int], None] = lambda _names: None) -> Iterator[str]:
        """The names of all schedules of the group. `on_page` receives the number of names of each page."""
        for page in self._scheduler.get_paginator("list_schedules").paginate(GroupName=self._group):
            on_page(len(page["Schedules"]))
            for one in page["Schedules"]:
                yield one["Name"]
