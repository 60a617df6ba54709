"""Creates what the sample events of the shipped work need: their input in the data bucket, or no bucket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

ORDERS = b'{"city": "Oslo", "n": 1}\n{"city": "Bergen", "n": 2}\n'
ORDERS_KEY = "work/input/orders.jsonl"


def prepare(event: str, client: Callable[[str], Any], names: Mapping[str, str]) -> None:
    """Called before each event; it may be called twice.

    Args:
        event: the sample event's name; "" for a file.
        names: logical -> physical names of the stack, which is used by this call alone.
    """
    s3, bucket = client("s3"), names["DataBucket"]
    if event == "unreachable_input":
        with suppress(s3.exceptions.NoSuchBucket):
            for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
                for each in page.get("Versions", []) + page.get("DeleteMarkers", []):
                    s3.delete_object(Bucket=bucket, Key=each["Key"], VersionId=each["VersionId"])
            s3.delete_bucket(Bucket=bucket)
        return
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key=ORDERS_KEY, Body=ORDERS)
