"""Create a DynamoDB table whose key is one string."""

from __future__ import annotations

from typing import Any


def create_table(dynamodb: Any, name: str, key: str) -> None:
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
        KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
    )
