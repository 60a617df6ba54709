"""The sample request of the shipped work, which `make local-up` and `make work` use."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

INPUT_KEY = "work/input/2012-01.jsonl"


def upload(s3: Any, bucket: str, content: bytes) -> None:
    """Upload the sample request's input to DataBucket. `content`: JSON Lines with the field `weather` in each."""
    s3.put_object(Bucket=bucket, Key=INPUT_KEY, Body=content, ContentType="application/x-ndjson")


def body(request_id: str = "") -> str:
    """A message body for WorkQueue that splits the sample. Without `request_id` it gets a new one."""
    payload = {"input_key": INPUT_KEY, "split_by": "weather"}
    return json.dumps({"request_id": request_id or f"sample-{secrets.token_hex(4)}", "payload": payload})


def result_lines(s3: Any, bucket: str, result: Mapping[str, Any]) -> list[str]:
    """What `make work` prints for a result of the work: its manifest, and its parts."""
    key = result["manifest"]
    manifest = json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    parts = (f"  {part['value']}: {part['key']}, records: {part['records']}" for part in manifest["parts"])
    return [f"its manifest in {bucket}: {key}", *parts]
