"""The shipped work: permanent errors, retryable errors and its time limit."""

from __future__ import annotations

import io
import itertools
import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import urllib3
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError, ReadTimeoutError, ResponseStreamingError

from functions.worker.tests.bucket import BY_CITY, INPUT_KEY, MANIFEST_PUT, ORDERS, Bucket, fail_on, request
from slotkeeper.retry.errors import Failure, Poison
from slotkeeper.retry.message import Message


def answer(bucket: Bucket, operation: str, status: int, code: str, headers: dict[str, str]) -> None:
    """Make S3 answer every such call with this error as an HTTP response."""

    def respond(request: Any, **_: Any) -> AWSResponse:
        body = io.BytesIO(f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())
        raw = urllib3.HTTPResponse(body, headers, status, preload_content=False)
        return AWSResponse(request.url, status, urllib3.HTTPHeaderDict(headers), raw)

    bucket.client.meta.events.register_first(f"before-send.s3.{operation}", respond)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({}, "payload must contain input_key, split_by"),
        ({"input_key": "a"}, "payload must contain split_by"),
        ({"input_key": INPUT_KEY, "split_by": 1}, "payload.split_by must be string (got 1)"),
        ({"input_key": "", "split_by": "a"}, "payload.input_key must match pattern ^work/input/."),
        ({"input_key": "output/2012-01.json", "split_by": "a"}, "payload.input_key must match pattern ^work/input/."),
        ({"input_key": INPUT_KEY, "split_by": "b", "c": 1}, "payload must not contain c; allowed are"),
        ({"input_key": "\udc00", "split_by": "b"}, "payload contains half of a surrogate pair"),
        (
            {"input_key": "work/input/" + "ö" * 507, "split_by": "b"},
            "payload.input_key is longer than the 1024 bytes that a key in S3 may have",
        ),
        (
            {"input_key": "work/input/none.jsonl", "split_by": "b"},
            "s3://data/work/input/none.jsonl does not exist. Upload it before you send its message",
        ),
    ],
)
def test_an_invalid_payload_is_poison_and_nothing_is_written(bucket: Bucket, payload: Any, reason: str) -> None:
    refused = bucket.perform(Message("r", payload))
    assert isinstance(refused, Poison)
    assert str(refused).startswith(reason)
    assert (bucket.boundaries.passed == []) == reason.startswith("payload")
    assert not [name for name in bucket.boundaries.passed if "PutObject" in name]


def test_an_input_that_is_too_large_is_poison_before_it_is_read(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket.work, "MAX_INPUT_BYTES", len(ORDERS))
    assert bucket.perform(request("largest"))["records"] == 3
    monkeypatch.setattr(bucket.work, "MAX_INPUT_BYTES", len(ORDERS) - 1)
    monkeypatch.setattr(bucket.work, "split", None)
    refused = bucket.perform(request())
    assert isinstance(refused, Poison)
    assert f"orders.jsonl has {len(ORDERS)} bytes; at most {len(ORDERS) - 1} are allowed" in str(refused)


def test_a_line_that_cannot_be_split_is_poison_and_nothing_is_written(bucket: Bucket) -> None:
    bucket.put(ORDERS + b"{}\n")
    refused = bucket.perform(request())
    assert isinstance(refused, Poison)
    assert str(refused).startswith("work/input/orders.jsonl: line 4 has no field 'city'")
    assert bucket.parts("r") == []


@pytest.mark.parametrize(
    ("request_id", "value", "what"),
    [("r", "ö" * 200, "value 'öööö"), ("ö" * 128, "a" * 400, "value 'aaaa"), ("\U0001f600" * 100, "a", "request_id '")],
)
def test_an_output_key_longer_than_1024_bytes_is_poison_and_nothing_is_written(
    bucket: Bucket, request_id: str, value: str, what: str
) -> None:
    bucket.put(ORDERS + json.dumps({"city": value}).encode())
    refused = bucket.perform(request(request_id))
    assert isinstance(refused, Poison)
    assert str(refused).startswith(what)
    assert "bytes; at most 1024 are allowed" in str(refused)
    assert not [name for name in bucket.boundaries.passed if "PutObject" in name]


@pytest.mark.parametrize("name", [".", "..", "../r", "a/b", "%2E", " ", "ö?#&"])
def test_every_request_id_and_value_has_its_own_key(bucket: Bucket, name: str) -> None:
    bucket.put(json.dumps({"city": name}).encode())
    results = [bucket.perform(request(each)) for each in (name, "r")]
    keys = [bucket.s3.get_object(Bucket="data", Key=each["manifest"])["Body"].read() for each in results]
    (part,) = json.loads(keys[0])["parts"]
    assert part["value"] == name
    assert {".", ".."}.isdisjoint(part["key"].split("/"))
    assert [part["key"].count("/"), results[0]["manifest"].count("/")] == [5, 2]
    assert results[0]["manifest"] != results[1]["manifest"]


@pytest.mark.parametrize(
    ("answered", "expected"),
    [
        ((503, "SlowDown", {"Retry-After": "7"}), ("RateLimited", 7.0)),
        ((503, "SlowDown", {}), ("RateLimited", None)),
        ((503, "SlowDown", {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}), ("RateLimited", None)),
        ((429, "TooManyRequests", {}), ("RateLimited", None)),
        ((400, "KMS.ThrottlingException", {}), ("RateLimited", None)),
        ((503, "ServiceUnavailable", {"Retry-After": "7"}), ("Retryable", 7.0)),
        ((500, "InternalError", {}), ("Retryable", None)),
    ],
)
@pytest.mark.parametrize("operation", ["GetObject", "PutObject"])
def test_a_busy_s3_raises_an_error_named_for_the_policy(
    bucket: Bucket, operation: str, answered: tuple[int, str, dict[str, str]], expected: tuple[str, float | None]
) -> None:
    answer(bucket, operation, *answered)
    failure = Failure.of(bucket.perform(request()))
    assert (failure.types[0], failure.retry_after) == expected
    assert "Retryable" in failure.types
    assert answered[1] in failure.reason


def test_another_s3_error_keeps_its_name(bucket: Bucket) -> None:
    answer(bucket, "PutObject", 403, "AccessDenied", {})
    refused = bucket.perform(request())
    assert isinstance(refused, ClientError)
    assert Failure.of(refused).types[0] == "AccessDenied"
    assert bucket.read("r") is None


def test_an_interrupted_input_is_retryable(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(*_: Any) -> Any:
        yield ORDERS[:30]
        raise ResponseStreamingError(error="connection broken")

    monkeypatch.setattr(bucket.work, "_chunks", break_off)
    assert Failure.of(bucket.perform(request())).types[0] == "Retryable"


def test_botocore_does_not_repeat_calls_to_s3(bucket: Bucket) -> None:
    config = bucket.client.meta.config
    assert config.retries["total_max_attempts"] == 1
    answer(bucket, "GetObject", 503, "SlowDown", {})
    bucket.perform(request())
    assert len(bucket.boundaries.passed) == 2
    assert (config.connect_timeout, config.read_timeout) == (1, 15)


@pytest.mark.parametrize("seconds", range(5))
def test_an_attempt_without_time_stops_and_leaves_nothing(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    clock = itertools.count()
    monkeypatch.setattr(bucket.work, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    stopped = bucket.perform(request(), seconds=seconds)

    # It reads the clock at its start, for the only chunk, for each of the two parts, and for the manifest.
    where = ["while the input was read", "after 0 of 2 parts", "after 1 of 2 parts", "before the manifest"]
    assert str(stopped) == (
        f"the {seconds:.1f} s of this attempt ended {where[max(seconds - 1, 0)]}; nothing was published"
    )
    assert Failure.of(stopped).types == ("TooSlow", "Retryable")
    assert bucket.read("r") is None
    assert bucket.parts("r") == []


def test_the_clock_is_checked_for_every_chunk_of_the_input(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(bucket.work, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(bucket.work, "CHUNK_BYTES", len(ORDERS) // 4)
    assert "while the input was read" in str(bucket.perform(request(), seconds=4))


@pytest.mark.parametrize("operation", ["ListObjectsV2", "DeleteObjects"])
def test_a_failing_clean_up_after_publishing_is_no_failure(bucket: Bucket, operation: str) -> None:
    bucket.perform(request(), on=fail_on(f"before {MANIFEST_PUT}", ReadTimeoutError(endpoint_url="the bucket")))
    answer(bucket, operation, 403, "AccessDenied", {})
    assert bucket.perform(request(attempt=2))["attempt"] == 2
    assert f"after {operation}" in bucket.boundaries.passed
    assert bucket.read("r") == BY_CITY


def test_a_clean_up_removes_more_than_1000_parts(bucket: Bucket) -> None:
    for number in range(1001):
        bucket.put(b"", f"work/parts/r/1/dead/{number}.jsonl")
    bucket.put(b"", "work/parts/r2/1/other/a.jsonl")

    bucket.perform(request(attempt=2))

    assert bucket.parts("r") == bucket.named_parts("r")
    assert bucket.parts("r2") == ["work/parts/r2/1/other/a.jsonl"]
    assert bucket.boundaries.passed.count("after DeleteObjects") == 2


def test_a_part_that_cannot_be_removed_is_logged(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = Mock()
    monkeypatch.setattr("functions.worker.src.work.publishing.logger", logger)
    bucket.put(b"", "work/parts/r/1/dead/a.jsonl")
    errors = [{"Key": "work/parts/r/1/dead/a.jsonl", "Code": "InternalError"}]
    bucket.client.meta.events.register(
        "before-call.s3.DeleteObjects", lambda **_: (SimpleNamespace(status_code=200), {"Errors": errors})
    )
    assert bucket.perform(request(attempt=2))["attempt"] == 2
    logger.warning.assert_called_once_with("S3 did not delete every part", errors=errors)
