"""The local Lambda runtime: the function's environment, errors, timeouts, and its isolation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dev.emulator import processes
from dev.tools.invoke.lambda_runtime import Configuration, FunctionFailed, Runtime
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the Lambda runtime's emulator is a program for Linux")

APP = """
import json, os, time

def handler(event, context):
    if event == "raise":
        raise ValueError("no such thing")
    if event == "hang":
        time.sleep(3600)
    if event == "end":
        os._exit(3)
    print("called")
    variables = {name: os.environ[name] for name in ("OWN", "AWS_LAMBDA_FUNCTION_NAME", "AWS_ENDPOINT_URL")}
    left = context.get_remaining_time_in_millis()
    return variables | {"event": event, "left": left, "memory": context.memory_limit_in_mb}
"""
NO_SERVICE = "http://127.0.0.1:9"
TIMEOUT = 60  # includes a cold start on a busy machine
SHORT = 3


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Runtime]]:
    (tmp_path / "app.py").write_text(APP)

    def start(timeout: int = TIMEOUT) -> Runtime:
        variables = {"OWN": "value", "AWS_ENDPOINT_URL": ""}
        function = Configuration("sample", tmp_path, "app.handler", timeout, 256, variables)
        return stack.enter_context(Runtime(function, NO_SERVICE, tmp_path / "log"))

    with ExitStack() as stack:
        yield start


def test_a_function_has_its_configuration_and_its_clock(start: Callable[..., Runtime]) -> None:
    runtime = start()
    answer = runtime.invoke({"a": 1})
    assert 0 < answer.pop("left") <= TIMEOUT * 1000
    assert answer == {
        "OWN": "value",
        "AWS_LAMBDA_FUNCTION_NAME": "sample",
        "AWS_ENDPOINT_URL": NO_SERVICE,
        "event": {"a": 1},
        "memory": "256",
    }
    assert "called" in runtime.new_output()
    assert runtime.new_output() == ""


@pytest.mark.parametrize(("event", "reason"), [("raise", "ValueError: no such thing"), ("end", "exit")])
def test_a_function_that_fails_returns_its_error_and_the_next_call_is_answered(
    start: Callable[..., Runtime], event: str, reason: str
) -> None:
    runtime = start()
    with pytest.raises(FunctionFailed, match=reason):
        runtime.invoke(event)
    assert runtime.invoke("again")["event"] == "again"


def test_a_function_that_hangs_is_ended_at_its_timeout_and_started_again(start: Callable[..., Runtime]) -> None:
    runtime = start(SHORT)
    timed_out = f"Task timed out after {SHORT}.00 seconds"
    with pytest.raises(FunctionFailed, match=timed_out):
        runtime.invoke("hang")

    def answered() -> bool:
        """False if a busy machine has not started the function within its timeout."""
        try:
            return bool(runtime.invoke("again")["event"] == "again")
        except FunctionFailed as error:
            if timed_out not in str(error):
                raise
            return False

    wait_until(answered, "an answer after the timeout")


def test_it_listens_at_an_address_that_no_page_can_find(start: Callable[..., Runtime]) -> None:
    first, second = start(), start()
    assert len({first.address, second.address, "127.0.0.1"}) == 3
    command = Path(f"/proc/{first.pid}/cmdline").read_text().split("\0")
    assert [each.partition(":")[0] for each in command if each.startswith("127.")] == [first.address] * 2


def test_its_end_leaves_no_process(start: Callable[..., Runtime]) -> None:
    runtime = start()
    runtime.invoke({})
    assert len(processes.session_members(runtime.pid)) == 2  # the emulator and its function
    runtime.__exit__(None, None, None)
    assert processes.session_members(runtime.pid) == []
