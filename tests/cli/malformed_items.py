"""Items of SlotTable and DownstreamTable that were edited manually."""

from __future__ import annotations

from typing import Any

from tests.cli.operator_account import Operator


def stored(operator: Operator, process: str = "sample") -> dict[str, Any]:
    """The item of a process, in DynamoDB's format."""
    return operator.processes.read_item(process)


def edit(operator: Operator, path: str, value: dict[str, Any] | None, process: str = "sample") -> None:
    """Replace an attribute of an item, as with the AWS CLI; None removes it."""
    item = stored(operator, process)
    *above, last = path.split("/")
    within = item
    for key in above:
        within = within[key]["M"]
    if value is None:
        del within[last]
    else:
        within[last] = value
    operator.dynamodb.put_item(TableName=operator.outputs["SlotTableName"], Item=item)


def add_malformed(operator: Operator, name: str = "odd") -> None:
    """Add a process whose limit is a text."""
    operator.processes.create(name, 3, "sample-job")
    edit(operator, "slot_limit", {"S": "3"}, name)


def malform_downstream(operator: Operator, name: str) -> None:
    """Write the item of a downstream whose state is empty."""
    item = {"downstream": {"S": name}, "version": {"N": "1"}, "writer": {"S": "w"}, "health": {"S": "{}"}}
    operator.dynamodb.put_item(TableName=operator.outputs["DownstreamTableName"], Item=item)
