"""The parts of a request in S3, published all or none by one conditional step.

    work/parts/<request id>/<attempt>/<token>/<value>.jsonl    what an attempt writes, of no account until named by
    work/published/<request id>.json                           the manifest, which is there or is not

Request id and value are percent-encoded. The manifest is written with If-None-Match, so the first one stays, whoever
else comes. Whoever removes parts that are not named has seen it first: no other can be published after that.
S3 answers every read with what was written before it (S3 guide, "What is Amazon S3?", data consistency model).
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

MAX_KEY_BYTES = 1024  # bytes (S3 guide, "Naming Amazon S3 objects")
MAX_DELETED_KEYS = 1000  # keys in one call (S3 API Reference, DeleteObjects)

# The manifest is there already; or something else happened to its key during the PUT, and it may be or may not
# (S3 guide, "How to prevent object overwrites with conditional writes").
_TAKEN = ("PreconditionFailed", "ConditionalRequestConflict")
_NO_ANSWER = (HTTPClientError, IncompleteReadError)


class RateLimited(Retryable):
    """S3 asks for fewer calls. A policy's rule of this name may say that such an attempt does not count."""


@contextmanager
def s3_errors() -> Iterator[None]:
    """Names the errors of S3 that pass, for the retry policy. What else it refuses is raised as it is."""
    try:
        yield
    except _NO_ANSWER as error:
        raise Retryable(f"S3 did not answer: {error}") from error
    except ClientError as error:
        status, code = _status(error), _code(error)
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        header = headers.get("retry-after", "")
        retry_after = float(header) if header.isascii() and header.isdecimal() else None
        if code == "SlowDown" or status == 429 or "Throttl" in code:  # the last one is what KMS says
            raise RateLimited(f"S3 asks for fewer calls: {error}", retry_after=retry_after) from error
        if status >= 500:
            raise Retryable(f"S3 failed: {error}", retry_after=retry_after) from error
        raise


class Outputs:
    """The outputs of one attempt, of which at most one attempt's are published.

    The token makes even two performances of the same attempt strangers to each other: the one that fails removes what
    it wrote, and that must never be what the other one published.
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
        """The manifest of this request, whichever attempt published it."""
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
        """Where the part of this value is. Raises Poison if S3 has no key as long as that."""
        return _checked(f"{self.prefix}{_segment(value)}.jsonl", f"value {value[:100]!r}")

    def write(self, part: Part) -> None:
        """Writes a part, which nobody sees before `publish`."""
        key = self.key(part.value)
        # Noted before it is there: a PUT whose answer is lost is to be removed too.
        self._written.append({"value": part.value, "key": key, "records": part.records, "bytes": len(part.content)})
        self._s3.put_object(Bucket=self._bucket, Key=key, Body=bytes(part.content), ContentType="application/x-ndjson")

    def publish(self, about: dict[str, Any]) -> dict[str, Any]:
        """Publishes what was written, unless another attempt was first. Returns the manifest that is published.

        Raises:
            Retryable, ClientError, HTTPClientError: none is published as far as can be seen.
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
            raise Retryable(f"S3 did not take the manifest {self.manifest_key}, and there is none") from error
        # Its answer was lost. It may still be on its way and take effect after this look, so its parts have to stay:
        # a later attempt removes them, as soon as a manifest that does not name them is there.
        raise error

    def discard_own(self) -> None:
        """Removes what was written here, as far as that works. Only for who can be sure not to have published it."""
        with _as_far_as_it_works(self.prefix):
            self._delete(part["key"] for part in self._written)

    def discard_unpublished(self, published: dict[str, Any]) -> None:
        """Removes the parts of this request that its manifest does not name, as far as that works."""
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
    # What stays costs storage and nothing else, since no manifest names it; the cause of a failure must stay the cause.
    try:
        yield
    except Exception:
        logger.warning("Could not remove parts that nobody published", prefix=prefix, exc_info=True)


def _segment(text: str) -> str:
    quoted = quote(text, safe="")
    # Segments of dots alone are taken for folders by many tools.
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")


def _checked(key: str, what: str) -> str:
    if len(key) > MAX_KEY_BYTES:
        raise Poison(f"{what} is too long: its key in S3 would have {len(key)} bytes, and {MAX_KEY_BYTES} are allowed")
    return key


def _code(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "")


def _status(error: ClientError) -> int:
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
