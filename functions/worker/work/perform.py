"""The work of a request: the part of the worker that you replace by your own.

The contract: `perform(request, remaining_seconds)` does one attempt's work and returns a dict, which the ledger keeps
as JSON. `request` has `request_id`, `payload` (any JSON object: what it must hold is checked here) and `attempt` (1,
2, ...). It raises

- `Poison(reason)` if no attempt can ever succeed: the message is dead-lettered at once;
- `Retryable(reason, retry_after=seconds)` if a later one can; a subclass has a name that the retry policy may have a
  rule for; `retry_after` only if the downstream said so;
- anything else, which is retried by the rule of its own name or the policy's default.

It must be atomic, and safe to do again and in two places at once: an attempt may die after its effect and before
anybody has noted it, and one that was taken for dead may wake up. It begins nothing after `remaining_seconds`.

The work that is shipped splits a JSON Lines object of the data bucket: one object for each value of a field, published
all or none (publishing.py). An input without lines publishes a manifest without parts: it is done, and whoever waits
for the manifest is told so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from slotkeeper.retry import Poison, Retryable, WorkRequest
from slotkeeper.schema import InvalidBody, compile_schema, decode
from slotkeeper.settings import WorkSettings, load_settings

from .publishing import MAX_KEY_BYTES, Outputs, s3_errors
from .splitting import split

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef


# In bytes. The whole input is held once, beside the runtime, in 512 MB.
MAX_INPUT_BYTES = 64 * 1024 * 1024
CHUNK_BYTES = 256 * 1024

_settings = load_settings(WorkSettings)
# No hidden second tries: the retry policy is there for them, with a history of what was tried and when. A call that
# hangs is given up while there is time to look and to clean up before the function's timeout: 50 + 3 x 16 of 120 s.
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
    """The time of this attempt was up; nothing of it was published."""


class _Deadline:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._at = time.monotonic() + seconds

    def check(self, when: str) -> None:
        if time.monotonic() >= self._at:
            raise TooSlow(f"the {self._seconds:.1f} s of this attempt were up {when}; nothing was published")


def perform(request: WorkRequest, remaining_seconds: float) -> dict[str, Any]:
    """Splits an object and publishes its parts, once however often it is called.

    Returns:
        `manifest`: its key; `attempt`: which one published; `parts` and `records`: how many.

    Raises:
        Poison: the payload or the input can never be worked on, or the id has been used for other work.
        Retryable, RateLimited, TooSlow: S3 failed, asked for fewer calls, or was too slow.
        ClientError: S3 refused for another reason.
    """
    deadline = _Deadline(remaining_seconds)
    wanted = _wanted(request)
    outputs = Outputs(_s3, _settings.data_bucket_name, request.request_id, request.attempt)
    with s3_errors():
        # An earlier attempt may have published, and died before anybody noted it.
        published = outputs.published() or _publish(outputs, wanted, deadline)
    if request.attempt > 1 or published["prefix"] != outputs.prefix:
        outputs.discard_unpublished(published)
    if (published["input"]["key"], published["split_by"]) != (wanted["input_key"], wanted["split_by"]):
        raise Poison(
            f"request_id {request.request_id!r} has published {published['input']['key']!r} split by "
            f"{published['split_by']!r} already: send other work under another id"
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
        raise Poison("payload" + str(error).removeprefix("body")) from error  # the layer reads bodies
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
        outputs.key(part.value)  # before any of them is written
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
        # To a role that may not list the bucket, S3 says 403 instead (API Reference, GetObject).
        raise Poison(f"there is no {where}: put it there before you send its message") from error
    if source["ContentLength"] > MAX_INPUT_BYTES:
        source["Body"].close()
        raise Poison(
            f"{where} has {source['ContentLength']} bytes, and {MAX_INPUT_BYTES} are allowed: send it in pieces"
        )
    return source


def _chunks(body: StreamingBody, deadline: _Deadline) -> Iterator[bytes]:
    for chunk in body.iter_chunks(CHUNK_BYTES):
        deadline.check("while the input was read")
        yield chunk
