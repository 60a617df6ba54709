"""s3_downstream: GetObject of a named key follows its script, and the record knows who called when."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from dev.emulator.aws import EmbeddedAws
from dev.emulator.clients import local_client
from dev.emulator.downstream import Call, Downstream, Step
from dev.scenarios.slots.figures import peak
from tests.support.waiting import NEVER, wait_until

BUCKET = "downstream"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    with EmbeddedAws.start(tmp_path_factory.mktemp("downstream"), downstream=True) as aws:
        aws.client("s3").create_bucket(Bucket=BUCKET)
        yield aws


@pytest.fixture
def key(engine: EmbeddedAws, unique: Callable[[str], str]) -> str:
    """An object that no other test asks for."""
    name = unique("input/a b")
    engine.client("s3").put_object(Bucket=BUCKET, Key=name, Body=b"content")
    return name


def read(engine: EmbeddedAws, key: str, read_timeout: float = NEVER) -> bytes:
    client = local_client("s3", engine.endpoint, read_timeout=read_timeout)
    body: bytes = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    return body


@contextmanager
def calling(engine: EmbeddedAws, key: str) -> Iterator[None]:
    """A caller that waits for its answer, and hangs up in the end."""
    with closing(http.client.HTTPConnection(engine.endpoint.removeprefix("http://"))) as caller:
        caller.request("GET", f"/{BUCKET}/{quote(key)}")
        yield


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


def test_each_call_of_a_key_meets_its_own_step(engine: EmbeddedAws, key: str) -> None:
    steps = [Step(0.3), Step(answer="slow_down", retry_after=25), Step(answer="slow_down"), Step(answer="error")]
    Downstream(engine.state_dir).follow({key: [*steps, Step(answer="drop")]})
    assert read(engine, key) == b"content"
    told, untold, error = (refusal(engine, key) for _ in range(3))
    with pytest.raises(ConnectionClosedError):
        read(engine, key)
    assert read(engine, key) == b"content"  # the script is over
    assert [each["Error"]["Code"] for each in (told, untold, error)] == ["SlowDown", "SlowDown", "InternalError"]
    assert [each["ResponseMetadata"]["HTTPStatusCode"] for each in (told, untold, error)] == [503, 503, 500]
    assert told["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == "25"
    assert "retry-after" not in untold["ResponseMetadata"]["HTTPHeaders"]
    noted = wait_until(lambda: (all(c.ended for c in calls(engine, key)) and calls(engine, key)) or None, "the record")
    assert [call.number for call in noted] == [1, 2, 3, 4, 5, 6]
    assert [call.answer for call in noted] == ["200", "503", "503", "500", "dropped", "200"]
    assert took(noted[0]) >= 0.3


def test_a_caller_that_hangs_up_is_gone_at_once(engine: EmbeddedAws, key: str) -> None:
    Downstream(engine.state_dir).follow({key: [Step(36_000)]})
    with pytest.raises(ReadTimeoutError):
        read(engine, key, read_timeout=0.5)
    call = wait_until(lambda: next((c for c in calls(engine, key) if c.ended), None), "the end of the call")
    assert call.answer == "gone"
    assert took(call) > 0.4


def test_a_slow_call_keeps_nobody_else_waiting(engine: EmbeddedAws, key: str) -> None:
    Downstream(engine.state_dir).follow({key: [Step(36_000)]})
    with calling(engine, key):
        wait_until(lambda: calls(engine, key), "the slow call")
        assert read(engine, key) == b"content"
        slow, quick = calls(engine, key)
    assert (slow.ended, quick.answer) == (None, "200")


def test_the_record_tells_how_many_called_at_once(engine: EmbeddedAws, key: str) -> None:
    Downstream(engine.state_dir).follow({key: [Step(36_000)] * 5})
    with ExitStack() as callers:
        for _ in range(5):
            callers.enter_context(calling(engine, key))
        wait_until(lambda: len(calls(engine, key)) == 5, "the five calls")
    noted = wait_until(lambda: (all(c.ended for c in calls(engine, key)) and calls(engine, key)) or None, "their ends")
    assert peak((call.began, call.ended or 0.0) for call in noted) == 5


def test_what_is_not_in_the_script_is_neither_hindered_nor_recorded(engine: EmbeddedAws, key: str) -> None:
    Downstream(engine.state_dir).follow({"another": [Step(answer="error")]})
    assert read(engine, key) == b"content"
    assert calls(engine, key) == []


def test_a_key_that_does_not_exist_is_s3_s_own_answer(engine: EmbeddedAws, unique: Callable[[str], str]) -> None:
    missing = unique("missing")
    Downstream(engine.state_dir).follow({missing: []})
    assert refusal(engine, missing)["Error"]["Code"] == "NoSuchKey"
    wait_until(lambda: [call.answer for call in calls(engine, missing)] == ["404"], "the record")


def test_only_reading_counts_as_a_call(engine: EmbeddedAws, key: str) -> None:
    Downstream(engine.state_dir).follow({key: [Step(answer="error")]})
    engine.client("s3").put_object(Bucket=BUCKET, Key=key, Body=b"other")
    engine.client("s3").head_object(Bucket=BUCKET, Key=key)
    assert calls(engine, key) == []


def test_an_engine_begins_with_an_empty_record(tmp_path: Path) -> None:
    for name in ("downstream.json", "downstream.jsonl"):
        (tmp_path / name).write_text('{"key": []}\n')
    with EmbeddedAws.start(tmp_path, downstream=True):
        assert Downstream(tmp_path).calls() == []
        assert not (tmp_path / "downstream.json").exists()
