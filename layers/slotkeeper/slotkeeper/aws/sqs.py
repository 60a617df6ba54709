"""Message attributes of SQS, and the size of a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_sqs.type_defs import MessageAttributeValueTypeDef


def text(value: str, longest: int) -> MessageAttributeValueTypeDef:
    """Return a string attribute of at most `longest` characters.

    SQS accepts no empty attribute and no control characters (SQS API Reference, SendMessage).
    """
    printable = "".join(c if c in "\t\n\r" or (c >= " " and c not in "\ufffe\uffff") else "?" for c in value)
    return {"DataType": "String", "StringValue": printable[:longest] or "-"}


def number(value: float) -> MessageAttributeValueTypeDef:
    return {"DataType": "Number", "StringValue": f"{value:.15g}"}


def size(body: str, attributes: Mapping[str, MessageAttributeValueTypeDef]) -> int:
    """Return the bytes that count for a queue's MaximumMessageSize: body, attribute names, types and values."""
    parts = [body]
    for name, value in attributes.items():
        parts += [name, value["DataType"], value.get("StringValue", "")]
    return sum(len(part.encode()) for part in parts)
