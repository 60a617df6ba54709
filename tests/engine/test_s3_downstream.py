"""s3_downstream: GetObject of a named key follows its script, and every call is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from dev.emulator.aws import EmbeddedAws
from dev.emulator.downstream import Call, Downstream, Outage, Step
from dev.emulator.local_clients import local_client
from tests.support.waiting import NEVER, wait_until

BUCKET = "downstream"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    with EmbeddedAws.start(tmp_path_factory.mktemp("downstream"), downstream=True) as aws:
        aws.client("s3").create_bucket(Bucket=BUCKET)
        yield aws


@pytest.fixture
def key(engine: EmbeddedAws, unique: Callable[[str], str]) -> str:
    """An object that no other test reads."""
    name = unique("input/a b")
    engine.client("s3").put_object(Bucket=BUCKET, Key=name, Body=b"content")
    return name


def read(engine: EmbeddedAws, key: str, read_timeout: float = NEVER) -> bytes:
    client = local_client("s3", engine.endpoint, read_timeout=read_timeout)
    body: bytes = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    return body


def calls(engine: EmbeddedAws, key: str) -> list[Call]:
    return [call for call in Downstream(engine.state_dir).calls() if call.key == key]


def took(call: Call) -> float:
    assert call.ended is not None
    return call.ended - call.began


def refusal(engine: EmbeddedAws, key: str) -> dict[str, Any]:
    with pytest.raises(ClientError) as caught:
        read(engine, key)
    response: dict[str, Any] = caught.value.response
    return response


def test_each_call_of_a_key_follows_its_step(engine: EmbeddedAws, key: str) -> None:
    steps = [Step(0.3), Step(answer="slow_down", retry_after=25), Step(answer="slow_down"), Step(answer="error")]
    Downstream(engine.state_dir).follow({key: [*steps, Step(answer="drop")]})
    assert read(engine, key) == b"content"
    stated, untold, error = (refusal(engine, key) for _ in range(3))
    with pytest.raises(ConnectionClosedError):
        read(engine, key)
    assert read(engine, key) == b"content"  # after the script's last step
    assert [each["Error"]["Code"] for each in (stated, untold, error)] == ["SlowDown", "SlowDown", "InternalError"]
    assert [each["ResponseMetadata"]["HTTPStatusCode"] for each in (stated, untold, error)] == [503, 503, 500]
    assert stated["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == "25"
    assert "retry-after" not in untold["ResponseMetadata"]["HTTPHeaders"]
    noted = wait_until(lambda: (all(c.ended for c in calls(engine, key)) and calls(engine, key)) or None, "the record")
    assert [call.number for call in noted] == [1, 2, 3, 4, 5, 6]
    assert [call.answer for call in noted] == ["200", "503", "503", "500", "dropped", "200"]
    assert took(noted[0]) >= 0.3


def test_a_caller_that_disconnects_is_recorded_immediately(engine: EmbeddedAws, key: str) -> None:
    Downstream(engine.state_dir).follow({key: [Step(36_000)]})
    with pytest.raises(ReadTimeoutError):
        read(engine, key, read_timeout=0.5)
    call = wait_until(lambda: next((c for c in calls(engine, key) if c.ended), None), "the end of the call")
    assert call.answer == "gone"
    assert took(call) > 0.4


def test_a_key_without_a_script_is_answered_normally_and_not_recorded(engine: EmbeddedAws, key: str) -> None:
    Downstream(engine.state_dir).follow({"another": [Step(answer="error")]})
    assert read(engine, key) == b"content"
    assert calls(engine, key) == []


def test_an_outage_fails_every_call_without_using_steps_until_one_succeeds_after_it(
    engine: EmbeddedAws, key: str
) -> None:
    script, now = {key: [Step(answer="error")]}, time.time()
    Downstream(engine.state_dir).follow(script, Outage(now, now + 3600, 0.2))
    unavailable = refusal(engine, key)
    with pytest.raises(ConnectionClosedError):
        read(engine, key)
    assert refusal(engine, key)["Error"]["Code"] == unavailable["Error"]["Code"] == "ServiceUnavailable"
    Downstream(engine.state_dir).follow(script, Outage(now, time.time()))
    assert read(engine, key) == b"content"
    assert refusal(engine, key)["Error"]["Code"] == "InternalError"  # the step
    noted = wait_until(lambda: (all(c.ended for c in calls(engine, key)) and calls(engine, key)) or None, "the record")
    assert [call.number for call in noted] == [0, 0, 0, 0, 1]
    assert [call.answer for call in noted] == ["503", "dropped", "503", "200", "500"]
    assert took(noted[0]) >= 0.2


def test_an_outage_that_has_not_begun_changes_nothing(engine: EmbeddedAws, key: str) -> None:
    later = time.time() + 3600
    Downstream(engine.state_dir).follow({key: []}, Outage(later, later + 1))
    assert read(engine, key) == b"content"
    assert [call.number for call in calls(engine, key)] == [1]
