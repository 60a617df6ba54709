"""The worker of deployed tests, which are independent of functions/worker. It reads the object that a request names."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, HTTPClientError

from slotkeeper.retry import Poison, Retryable, RetryingWorker, WorkRequest


def perform(request: WorkRequest, remaining_seconds: float) -> dict[str, Any]:
    bucket, key = request.payload["bucket"], request.payload["input_key"]
    config = Config(connect_timeout=1, read_timeout=remaining_seconds, retries={"total_max_attempts": 1})
    try:
        answer = boto3.client("s3", config=config).get_object(Bucket=bucket, Key=key)
        return {"read": answer["Body"].read().decode()}
    except HTTPClientError as error:
        raise Retryable(f"S3 did not answer: {error}") from error
    except ClientError as error:
        if error.response["Error"]["Code"] == "NoSuchKey":
            raise Poison(f"s3://{bucket}/{key} does not exist") from error
        after = error.response["ResponseMetadata"]["HTTPHeaders"].get("retry-after")
        raise Retryable(f"S3 failed: {error}", retry_after=float(after) if after else None) from error


_worker = RetryingWorker.from_environment(perform)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return _worker.handle(event, context)
