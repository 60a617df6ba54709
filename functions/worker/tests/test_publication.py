"""Outputs are published completely or not at all, and once, under kills, failures and concurrent attempts."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from functions.worker.tests.bucket import (
    BY_CITY,
    INPUT_KEY,
    MANIFEST_PUT,
    Bucket,
    View,
    fail_at,
    fail_on,
    kill_at,
    request,
)
from slotkeeper.retry.errors import Retryable
from slotkeeper.retry.message import Message
from tests.simulation.account.boundary import Killed


def refusal(code: str, status: int = 400) -> ClientError:
    response: Any = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "PutObject")


def lost() -> ReadTimeoutError:
    return ReadTimeoutError(endpoint_url="the bucket")


def assert_published_once(bucket: Bucket, request_id: str) -> None:
    """All parts are published by one manifest, and no other part exists."""
    assert bucket.read(request_id) == BY_CITY
    assert bucket.times_published(request_id) == 1
    assert bucket.parts(request_id) == bucket.named_parts(request_id)


def test_the_manifest_describes_input_and_parts(bucket: Bucket) -> None:
    result = bucket.work.perform(request("a/b", attempt=1), 50)

    manifest = bucket.manifest("a%2Fb")
    assert manifest is not None
    source = bucket.s3.head_object(Bucket="data", Key=INPUT_KEY)
    prefix = manifest["prefix"]
    assert prefix.startswith("work/parts/a%2Fb/1/")
    assert manifest.pop("published_at").endswith("+00:00")
    assert manifest == {
        "request_id": "a/b",
        "attempt": 1,
        "prefix": prefix,
        "input": {"key": INPUT_KEY, "etag": source["ETag"], "version_id": source["VersionId"]},
        "split_by": "city",
        "records": 3,
        "parts": [
            {"value": "Oslo", "key": f"{prefix}Oslo.jsonl", "records": 2, "bytes": 50},
            {"value": "Rom/a", "key": f"{prefix}Rom%2Fa.jsonl", "records": 1, "bytes": 26},
        ],
    }
    assert result == {"manifest": "work/published/a%2Fb.json", "attempt": 1, "parts": 2, "records": 3}
    assert bucket.read("a%2Fb") == BY_CITY


def test_an_input_without_lines_publishes_a_manifest_without_parts(bucket: Bucket) -> None:
    bucket.put(b"")
    assert bucket.perform(request())["records"] == 0
    assert bucket.read("r") == {}


def test_another_attempt_finds_the_manifest_and_writes_nothing(bucket: Bucket) -> None:
    first = bucket.perform(request())
    bucket.put(b'{"city": "Bonn"}\n')

    assert bucket.perform(request(attempt=2)) == first
    assert not [name for name in bucket.boundaries.passed if "PutObject" in name]
    assert_published_once(bucket, "r")


def test_a_request_id_that_published_other_work_is_refused(bucket: Bucket) -> None:
    bucket.perform(request())
    refused = bucket.perform(request(split_by="n"))
    assert str(refused).startswith(f"request_id 'r' has already published '{INPUT_KEY}' split by 'city'")
    assert_published_once(bucket, "r")


def die_after_a_part(bucket: Bucket, request_id: str) -> None:
    bucket.perform(request(request_id), on=fail_on("after PutObject", Killed()))


@pytest.mark.parametrize(
    ("attempt", "boundaries"),
    [
        pytest.param(1, 10, id="before and after two reads, two parts and the manifest"),
        pytest.param(2, 14, id="also before and after listing and deleting the parts of the first attempt"),
    ],
)
def test_f25_killed_at_any_call_the_next_attempt_makes_one_whole_effect(
    bucket: Bucket, attempt: int, boundaries: int
) -> None:
    if attempt > 1:
        die_after_a_part(bucket, "counted")
    assert bucket.count_boundaries(request("counted", attempt)) == boundaries
    for boundary in range(boundaries):
        request_id = bucket.new_request_id()
        if attempt > 1:
            die_after_a_part(bucket, request_id)

        died = bucket.perform(request(request_id, attempt), on=kill_at(boundary))
        seen = bucket.read(request_id)
        done = bucket.perform(request(request_id, attempt + 1))

        assert isinstance(died, Killed)
        assert seen in (None, BY_CITY)
        assert done["parts"] == 2
        assert_published_once(bucket, request_id)


# Fault -> the error of the call, and the step between boundaries: a 403 after a call would mean that it had no effect.
FAULTS: dict[str, tuple[Exception, int]] = {
    "no answer": (lost(), 1),
    "failed": (refusal("InternalError", 500), 1),
    "asked to slow down": (refusal("SlowDown", 503), 1),
    "refused": (refusal("AccessDenied", 403), 2),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_of_any_call_publishes_no_part_alone_and_the_next_attempt_succeeds(
    bucket: Bucket, fault: str
) -> None:
    error, step = FAULTS[fault]
    for boundary in range(0, bucket.count_boundaries(request()), step):
        request_id = bucket.new_request_id()

        first = bucket.perform(request(request_id), on=fail_at(boundary, error))
        seen = bucket.read(request_id)
        second = bucket.perform(request(request_id, attempt=2))

        assert isinstance(first, Retryable | ClientError) or seen == BY_CITY
        assert seen in (None, BY_CITY)
        assert second["parts"] == 2
        assert_published_once(bucket, request_id)


def test_a_manifest_whose_answer_was_lost_is_found_and_is_success(bucket: Bucket) -> None:
    result = bucket.perform(request(), on=fail_on(f"after {MANIFEST_PUT}", lost()))
    assert result == {"manifest": "work/published/r.json", "attempt": 1, "parts": 2, "records": 3}
    assert_published_once(bucket, "r")


def test_a_manifest_that_arrives_after_its_sender_failed_names_existing_parts(bucket: Bucket) -> None:
    delayed: list[dict[str, Any]] = []
    event = "provide-client-params.s3.PutObject"
    bucket.client.meta.events.register(event, lambda params, **_: delayed.append(dict(params)))

    failed = bucket.perform(request(), on=fail_on(f"before {MANIFEST_PUT}", lost()))
    assert bucket.read("r") is None
    bucket.s3.put_object(**delayed[-1])

    assert isinstance(failed, Retryable)
    assert bucket.read("r") == BY_CITY
    assert bucket.perform(request(attempt=2))["attempt"] == 1
    assert_published_once(bucket, "r")


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("ConditionalRequestConflict", 409, Retryable),
        ("PreconditionFailed", 409, Retryable),
        ("AccessDenied", 403, ClientError),
    ],
)
def test_a_manifest_that_was_refused_leaves_nothing(
    bucket: Bucket, code: str, status: int, kind: type[Exception]
) -> None:
    failed = bucket.perform(request(), on=fail_on(f"before {MANIFEST_PUT}", refusal(code, status)))
    assert isinstance(failed, kind)
    assert bucket.parts("r") == []


@pytest.mark.parametrize(
    ("attempt", "refused", "kind"),
    [
        (1, refusal("AccessDenied", 403), ClientError),
        (2, refusal("AccessDenied", 403), ClientError),
        (2, refusal("ConditionalRequestConflict", 409), dict),  # the other attempt's success
    ],
)
def test_a_failed_attempt_does_not_remove_parts_that_another_published(
    bucket: Bucket, attempt: int, refused: ClientError, kind: type
) -> None:
    def other_wins(number: int, name: str) -> None:
        if name.startswith(f"before {MANIFEST_PUT}"):
            elsewhere = threading.Thread(target=bucket.perform, args=(request(attempt=attempt),))
            elsewhere.start()
            elsewhere.join()
            raise refused

    result = bucket.perform(request(), on=other_wins)
    assert isinstance(result, kind)
    assert not isinstance(result, dict) or result["attempt"] == attempt
    assert_published_once(bucket, "r")


# An attempt whose manifest is refused reads the manifest, lists and deletes: three more calls.
REFUSED_ADDS = 6


class Interleaved:
    """Two attempts, of which one runs at a time.

    1. The first runs up to its boundary `first_stops`.
    2. The second runs up to its boundary `second_stops`.
    3. The first runs to its end, then the second.

    `seen` contains a reader's view after every call of either.
    """

    def __init__(self, bucket: Bucket, first: Message, second: Message, first_stops: int, second_stops: int) -> None:
        self.seen: list[View] = []
        self.second_result: Any = None
        self._bucket = bucket
        self._request_id = first.request_id
        self._stops = (first_stops, second_stops)
        self._main = threading.current_thread()
        self._continue = threading.Event()
        self._stopped = threading.Event()
        self._second = threading.Thread(target=self._run_second, args=(second,))
        self.first_result = bucket.perform(first, on=self._on)
        self._continue.set()
        self._second.join()

    def _run_second(self, second: Message) -> None:
        self.second_result = self._bucket.perform(second, on=self._on)
        self._stopped.set()

    def _on(self, number: int, name: str) -> None:
        if name.startswith("after"):
            self.seen.append(self._bucket.read(self._request_id))
        first_stops, second_stops = self._stops
        if threading.current_thread() is self._main:
            if number == first_stops:
                self._second.start()
                self._stopped.wait()
        elif number == second_stops:
            self._stopped.set()
            self._continue.wait()


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1), (1, 1)])
def test_f24_two_attempts_interleaved_at_every_call_publish_one_whole_effect(
    bucket: Bucket, first: int, second: int
) -> None:
    # Nothing reaches the bucket between the end of a call and the start of the next one, so one stop is enough.
    boundaries = bucket.count_boundaries(request("counted", first))
    for first_stops in range(0, boundaries, 2):
        for second_stops in range(0, boundaries + REFUSED_ADDS, 2):
            made = bucket.new_request_id()

            both = Interleaved(bucket, request(made, first), request(made, second), first_stops, second_stops)

            assert both.first_result["parts"] == 2
            assert both.second_result == both.first_result
            assert [seen for seen in both.seen if seen not in (None, BY_CITY)] == []
            assert_published_once(bucket, made)
