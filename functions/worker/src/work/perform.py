"""The work of a request: the part of the worker that you replace by your own.

The contract: `perform(request, remaining_seconds)` does the work of one attempt and returns a dict, which the ledger
stores as JSON. `request` has `request_id`, `payload` (any JSON object; validate it here) and `attempt` (1, 2, ...). It
raises

- `Poison(reason)` if no attempt can ever succeed: the message is dead-lettered immediately.
- `Retryable(reason, retry_after=seconds)` if a later attempt can succeed. The retry policy may have a rule for the name
  of a subclass. Pass `retry_after` only if the downstream sent it.
- Any other exception is retried by the rule for its class name, or by the policy's default.

The work must be atomic, and safe to repeat, also at the same time in two containers: an attempt may die after its work
has taken effect and before that is recorded, and an attempt that was taken for dead may continue. It must not start
anything after `remaining_seconds`.

The sample work splits a JSON Lines object of the data bucket into one object per value of a field, and publishes all of
them or none (publishing.py). For an input without lines it publishes a manifest without parts, so that consumers of the
manifest see that the work is done.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from slotkeeper.retry import Poison, Retryable, WorkRequest
from slotkeeper.schema import InvalidBody, compile_schema, decode
from slotkeeper.settings import load_settings

from .publishing import MAX_KEY_BYTES, Outputs, s3_errors
from .splitting import split

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef


# The whole input is held in memory once. The function has 512 MB, including the runtime.
MAX_INPUT_BYTES = 64 * 1024 * 1024
CHUNK_BYTES = 256 * 1024


class WorkSettings(NamedTuple):
    """The environment variables of the work, in lower case."""

    data_bucket_name: str
    work_seconds: int


_settings = load_settings(WorkSettings)
# One attempt per call: retries are made by the retry policy, which records them. A call that hangs times out early
# enough to read and clean up before the function's timeout: 50 + 3 x 16 of 120 s.
_s3 = boto3.client(
    "s3",
    config=Config(
        connect_timeout=1,
        read_timeout=min(_settings.work_seconds, 15),
        retries={"mode": "standard", "total_max_attempts": 1},
    ),
)
_validate = compile_schema(Path(__file__).with_name("payload.schema.json"))


class TooSlow(Retryable):
    """The time of this attempt has ended. Nothing was published."""


class _Deadline:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._at = time.monotonic() + seconds

    def check(self, when: str) -> None:
        if time.monotonic() >= self._at:
            raise TooSlow(f"the {self._seconds:.1f} s of this attempt ended {when}; nothing was published")


def perform(request: WorkRequest, remaining_seconds: float) -> dict[str, Any]:
    """Split an object and publish its parts. Repeated calls publish once.

    Returns:
        `manifest`: its key; `attempt`: the attempt that published; `parts` and `records`: their numbers.

    Raises:
        Poison: the payload or the input is not valid, or the request id was used for other work.
        Retryable, RateLimited, TooSlow: S3 failed, throttled, or was too slow.
        ClientError: S3 refused for another reason.
    """
    deadline = _Deadline(remaining_seconds)
    wanted = _wanted(request)
    outputs = Outputs(_s3, _settings.data_bucket_name, request.request_id, request.attempt)
    with s3_errors():
        # An earlier attempt may have published, and died before the ledger recorded it.
        published = outputs.published() or _publish(outputs, wanted, deadline)
    if request.attempt > 1 or published["prefix"] != outputs.prefix:
        outputs.discard_unpublished(published)
    if (published["input"]["key"], published["split_by"]) != (wanted["input_key"], wanted["split_by"]):
        raise Poison(
            f"request_id {request.request_id!r} has already published {published['input']['key']!r} split by "
            f"{published['split_by']!r}. Send other work with a new request_id"
        )
    return {
        "manifest": outputs.manifest_key,
        "attempt": published["attempt"],
        "parts": len(published["parts"]),
        "records": published["records"],
    }


def _wanted(request: WorkRequest) -> dict[str, Any]:
    try:
        wanted: dict[str, Any] = decode(json.dumps(request.payload), _validate)
    except InvalidBody as error:
        raise Poison("payload" + str(error).removeprefix("body")) from error  # `decode` names its input "body"
    if len(wanted["input_key"].encode()) > MAX_KEY_BYTES:
        raise Poison(f"payload.input_key is longer than the {MAX_KEY_BYTES} bytes that a key in S3 may have")
    return wanted


def _publish(outputs: Outputs, wanted: dict[str, Any], deadline: _Deadline) -> dict[str, Any]:
    source = _open(wanted["input_key"])
    try:
        with closing(source["Body"]) as body:
            parts = split(_chunks(body, deadline), wanted["split_by"])
    except Poison as error:
        raise Poison(f"{wanted['input_key']}: {error}") from error
    for part in parts:
        outputs.key(part.value)  # raises Poison for a key that is too long, before any part is written
    try:
        for number, part in enumerate(parts):
            deadline.check(f"after {number} of {len(parts)} parts")
            outputs.write(part)
        deadline.check("before the manifest")
    except Exception:
        outputs.discard_own()
        raise
    return outputs.publish(
        {
            "input": {"key": wanted["input_key"], "etag": source["ETag"], "version_id": source.get("VersionId")},
            "split_by": wanted["split_by"],
            "records": sum(part.records for part in parts),
        }
    )


def _open(key: str) -> GetObjectOutputTypeDef:
    where = f"s3://{_settings.data_bucket_name}/{key}"
    try:
        source = _s3.get_object(Bucket=_settings.data_bucket_name, Key=key)
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchKey":
            raise
        # S3 answers 403 instead if the role may not list the bucket (API Reference, GetObject).
        raise Poison(f"{where} does not exist. Upload it before you send its message") from error
    if source["ContentLength"] > MAX_INPUT_BYTES:
        source["Body"].close()
        raise Poison(
            f"{where} has {source['ContentLength']} bytes; at most {MAX_INPUT_BYTES} are allowed. Send it in pieces"
        )
    return source


def _chunks(body: StreamingBody, deadline: _Deadline) -> Iterator[bytes]:
    for chunk in body.iter_chunks(CHUNK_BYTES):
        deadline.check("while the input was read")
        yield chunk
