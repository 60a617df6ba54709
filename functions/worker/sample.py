"""The sample request of the shipped work, which `make local-up` and `make work` use."""

from __future__ import annotations

import json
import secrets
from typing import Any

from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import counted
from dev.emulator.sample_data import SPLIT_BY, content, months_as_json_lines

MONTH = "2012-01"  # of the sample data
INPUT_KEY = f"work/input/{MONTH}.jsonl"


def upload(aws: EmbeddedAws) -> None:
    """Upload the sample request's input, a month of the sample data as JSON Lines, to DataBucket."""
    aws.client("s3").put_object(
        Bucket=aws.outputs["DataBucketName"],
        Key=INPUT_KEY,
        Body=content(months_as_json_lines()[MONTH]),
        ContentType="application/x-ndjson",
    )


def body(request_id: str = "") -> str:
    """A message body for WorkQueue that splits the sample. Without `request_id` it gets a new one."""
    payload = {"input_key": INPUT_KEY, "split_by": SPLIT_BY}
    return json.dumps({"request_id": request_id or f"sample-{secrets.token_hex(4)}", "payload": payload})


def result_lines(aws: EmbeddedAws, result: Any) -> list[str]:
    """What `make work` prints for a result of the work: its manifest, and its parts."""
    bucket, key = aws.outputs["DataBucketName"], result["manifest"]
    manifest = json.loads(aws.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read())
    parts = (f"  {part['value']}: {counted(part['records'], 'record')} in {part['key']}" for part in manifest["parts"])
    return [f"its manifest in {bucket}: {key}", *parts]
