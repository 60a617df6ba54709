"""The items of the downstreams of a stack's worker, for commands that need no setting of the policy."""

from __future__ import annotations

from slotkeeper.retry.downstream.downstreams import DownstreamTable, MalformedHealth
from slotkeeper.retry.downstream.health import Health
from slotkeeper_cli.stack_connection import StackConnection


def read_downstreams(stack: StackConnection) -> dict[str, Health | MalformedHealth]:
    """The health of each downstream that has an item (one Scan); none in a stack without the table."""
    if "DownstreamTableName" not in stack.outputs:
        return {}
    return DownstreamTable(stack.client("dynamodb"), stack.outputs["DownstreamTableName"]).read_all()
