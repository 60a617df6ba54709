"""One conditional UpdateItem, and the item as it stands after it, whether the condition held or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def update(
    dynamodb: DynamoDBClient, table_name: str, key: Mapping[str, Any], **expressions: Any
) -> tuple[bool, dict[str, Any]]:
    """Whether the condition held, and the item now; empty if there is none.

    Errors of DynamoDB itself pass through as ClientError or BotoCoreError.
    """
    try:
        answer = dynamodb.update_item(
            TableName=table_name,
            Key=key,
            ReturnValues="ALL_NEW",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
            **expressions,
        )
    except ClientError as error:
        if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
            raise
        # Told only if there is an item, and by some engines never: so look before judging.
        told = cast(dict[str, Any], error.response).get("Item")
        if not told:
            read = dynamodb.get_item(TableName=table_name, Key=key, ConsistentRead=True)
            told = cast(dict[str, Any], read.get("Item", {}))
        return False, told
    return True, cast(dict[str, Any], answer["Attributes"])
