"""Publishes the parts of a request in S3, all or none, by one conditional write.

    work/parts/<request id>/<attempt>/<token>/<value>.jsonl    the parts that an attempt writes
    work/published/<request id>.json                           the manifest, which names the published parts

Request id and value are percent-encoded. The manifest is written with If-None-Match, so only the first attempt can
publish one. Parts that it does not name are removed only after it was read, when no other manifest can be published.
S3 reads are strongly consistent (S3 guide, "What is Amazon S3?", data consistency model).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from itertools import batched
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

from botocore.exceptions import ClientError, HTTPClientError, IncompleteReadError

from slotkeeper.observability import logger
from slotkeeper.retry.errors import Poison, Retryable

from .splitting import Part

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MAX_KEY_BYTES = 1024  # S3 guide, "Naming Amazon S3 objects"
MAX_DELETED_KEYS = 1000  # in one call (S3 API Reference, DeleteObjects)

# The manifest exists already, or its key was changed during the PUT, and it may exist (S3 guide, "How to prevent object
# overwrites with conditional writes").
_TAKEN = ("PreconditionFailed", "ConditionalRequestConflict")
_NO_ANSWER = (HTTPClientError, IncompleteReadError)


class RateLimited(Retryable):
    """S3 throttled the calls. By the built-in rule of this name such an attempt does not count."""


@contextmanager
def s3_errors() -> Iterator[None]:
    """Convert temporary errors of S3 to Retryable or RateLimited, for the retry policy. Other errors pass through."""
    try:
        yield
    except _NO_ANSWER as error:
        raise Retryable(f"S3 did not answer: {error}") from error
    except ClientError as error:
        status, code = _status(error), _code(error)
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        header = headers.get("retry-after", "")
        retry_after = float(header) if header.isascii() and header.isdecimal() else None
        if code == "SlowDown" or status == 429 or "Throttl" in code:  # the last one is an error of KMS
            raise RateLimited(f"S3 throttled the calls: {error}", retry_after=retry_after) from error
        if status >= 500:
            raise Retryable(f"S3 failed: {error}", retry_after=retry_after) from error
        raise


class Outputs:
    """The outputs of one attempt. The outputs of at most one attempt are published.

    The keys contain a random token, so that two runs of the same attempt have different keys: a run that fails removes
    its parts, and must not remove the parts that the other run has published.
    """

    def __init__(self, s3: S3Client, bucket: str, request_id: str, attempt: int) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._request_id = request_id
        self._attempt = attempt
        self._all = f"work/parts/{_segment(request_id)}/"
        self._written: list[dict[str, Any]] = []
        self.prefix = f"{self._all}{attempt}/{uuid4().hex[:8]}/"
        self.manifest_key = _checked(f"work/published/{_segment(request_id)}.json", f"request_id {request_id[:100]!r}")

    def published(self) -> dict[str, Any] | None:
        """Read the manifest of this request, of any attempt; None if none is published."""
        try:
            answer = self._s3.get_object(Bucket=self._bucket, Key=self.manifest_key)
        except ClientError as error:
            if _code(error) == "NoSuchKey":
                return None
            raise
        with closing(answer["Body"]) as body:
            manifest: dict[str, Any] = json.loads(body.read())
        return manifest

    def key(self, value: str) -> str:
        """Return the key of a value's part. Raises Poison if it is longer than S3 allows."""
        return _checked(f"{self.prefix}{_segment(value)}.jsonl", f"value {value[:100]!r}")

    def write(self, part: Part) -> None:
        """Write a part. It is not published before `publish`."""
        key = self.key(part.value)
        # Recorded before the PUT, so that the part is removed also if the answer is lost.
        self._written.append({"value": part.value, "key": key, "records": part.records, "bytes": len(part.content)})
        self._s3.put_object(Bucket=self._bucket, Key=key, Body=bytes(part.content), ContentType="application/x-ndjson")

    def publish(self, about: dict[str, Any]) -> dict[str, Any]:
        """Publish the written parts, unless another attempt has published. Return the published manifest.

        Raises:
            Retryable, ClientError, HTTPClientError: no manifest was found after the failed write.
        """
        manifest = {
            "request_id": self._request_id,
            "attempt": self._attempt,
            "prefix": self.prefix,
            **about,
            "published_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "parts": self._written,
        }
        try:
            self._s3.put_object(
                Bucket=self._bucket,
                Key=self.manifest_key,
                Body=json.dumps(manifest, ensure_ascii=False).encode(),
                ContentType="application/json",
                IfNoneMatch="*",
            )
        except (ClientError, *_NO_ANSWER) as error:
            return self._published_after(error)
        return manifest

    def _published_after(self, error: Exception) -> dict[str, Any]:
        refusal = _code(error) if isinstance(error, ClientError) and _status(error) < 500 else ""
        if refusal and refusal not in _TAKEN:
            self.discard_own()
            raise error
        publication = self.published()
        if publication is not None:
            return publication
        if refusal:
            self.discard_own()
            raise Retryable(f"S3 refused the manifest {self.manifest_key}, although none exists") from error
        # The answer was lost. The PUT may still take effect after this read, so its parts must stay. A later attempt
        # removes them when a manifest exists that does not name them.
        raise error

    def discard_own(self) -> None:
        """Try to remove the parts that this run has written. Call it only if they were certainly not published."""
        with _as_far_as_it_works(self.prefix):
            self._delete(part["key"] for part in self._written)

    def discard_unpublished(self, published: dict[str, Any]) -> None:
        """Try to remove the parts of this request that its manifest does not name."""
        with _as_far_as_it_works(self._all):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._all)
            keys = (listed["Key"] for page in pages for listed in page.get("Contents", []))
            self._delete(key for key in keys if not key.startswith(published["prefix"]))

    def _delete(self, keys: Iterable[str]) -> None:
        for some in batched(keys, MAX_DELETED_KEYS, strict=False):
            answer = self._s3.delete_objects(
                Bucket=self._bucket, Delete={"Objects": [{"Key": key} for key in some], "Quiet": True}
            )
            if answer.get("Errors"):
                logger.warning("S3 did not delete every part", errors=answer["Errors"][:10])


@contextmanager
def _as_far_as_it_works(prefix: str) -> Iterator[None]:
    # Parts that stay only cost storage, because no manifest names them. An exception here must not replace the error
    # because of which the parts are removed.
    try:
        yield
    except Exception:
        logger.warning("Could not remove unpublished parts; they only cost storage", prefix=prefix, exc_info=True)


def _segment(text: str) -> str:
    quoted = quote(text, safe="")
    # Many tools interpret a segment of dots alone as a folder.
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")


def _checked(key: str, what: str) -> str:
    if len(key) > MAX_KEY_BYTES:
        raise Poison(
            f"{what} is too long: its key in S3 would have {len(key)} bytes; at most {MAX_KEY_BYTES} are allowed"
        )
    return key


def _code(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "")


def _status(error: ClientError) -> int:
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
