"""The shipped work in the worker: each request is killed at one call, of the worker's or of the work's."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from functions.worker.tests.bucket import BY_CITY, INPUT_KEY, Bucket, kill_at, nothing
from slotkeeper.retry import WorkRequest
from slotkeeper.retry.ledger import SUCCEEDED
from tests.support.in_process_aws import InProcessAws
from tests.unit.waiting_retries import killed
from tests.unit.worker_harness import WorkerHarness

WORKERS_CALLS = 2  # claim, settle
WORKS_BOUNDARIES = 10  # before and after two reads, two parts and the manifest


@pytest.fixture
def workplace(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> WorkerHarness:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "local")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    made = WorkerHarness(InProcessAws())

    def perform(request: WorkRequest, seconds: float) -> Any:
        made.performed.append((request.request_id, request.attempt))
        return bucket.work.perform(request, seconds)

    made.perform = perform
    return made


def _live(workplace: WorkerHarness, bucket: Bucket, request_id: str) -> None:
    """Deliver one message after the other. Between them a reader sees all of the result or nothing."""
    workplace.send(request_id, input_key=INPUT_KEY, split_by="city")
    while workplace.queue:
        workplace.deliver(min(workplace.queue, key=lambda queued: queued.visible_at))
        assert bucket.read(request_id) in (None, BY_CITY)


def _check(workplace: WorkerHarness, bucket: Bucket, request_id: str) -> None:
    attempts = [attempt for name, attempt in workplace.performed if name == request_id]
    row = workplace.row(request_id)
    assert (row["status"], workplace.dead_letters) == (SUCCEEDED, []), request_id
    assert len(attempts) == len(set(attempts)), f"{request_id}: an attempt was made twice: {attempts}"
    assert bucket.read(request_id) == BY_CITY, request_id
    assert bucket.times_published(request_id) == 1, request_id
    assert bucket.parts(request_id) == bucket.named_parts(request_id), request_id


def test_r1_r2_killed_at_any_call_of_its_work_a_request_has_one_whole_effect(
    workplace: WorkerHarness, bucket: Bucket
) -> None:
    for boundary in range(WORKS_BOUNDARIES):
        bucket.boundaries.begin(kill_at(boundary))
        _live(workplace, bucket, f"r-{boundary}")
        _check(workplace, bucket, f"r-{boundary}")
    assert workplace.deaths == WORKS_BOUNDARIES


def test_r1_r2_killed_at_any_call_around_its_work_a_request_has_one_whole_effect(
    workplace: WorkerHarness, bucket: Bucket
) -> None:
    bucket.boundaries.begin(nothing)
    for call, when in itertools.product(range(1, WORKERS_CALLS + 1), ("before", "after")):
        workplace.strike(call, when, killed)
        _live(workplace, bucket, f"{when}-{call}")
        _check(workplace, bucket, f"{when}-{call}")
    assert workplace.deaths == 2 * WORKERS_CALLS


def test_a_request_makes_exactly_the_calls_that_are_killed(workplace: WorkerHarness, bucket: Bucket) -> None:
    bucket.boundaries.begin(nothing)
    _live(workplace, bucket, "r")
    assert (len(workplace.calls), len(bucket.boundaries.passed)) == (WORKERS_CALLS, WORKS_BOUNDARIES)
