"""lambda_logs: the log of an invocation has all of its lines, also if they arrive late."""

import base64
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

from dev.emulator.aws import EmbeddedAws
from dev.emulator.engine.emulator import lambda_runtime
from dev.emulator.engine.patches.lambda_logs import MARKER, read_to_marker

APP = """
def handler(event, context):
    print(event["first"])
    print("no line break", end="")
"""


def test_the_log_has_the_last_line_without_a_marker(aws: EmbeddedAws, function: Callable[..., str]) -> None:
    functions, name = aws.client("lambda"), function(APP)
    for number in range(2):
        answer = functions.invoke(FunctionName=name, Payload=f'{{"first": "line {number}"}}', LogType="Tail")
        log = base64.b64decode(answer["LogResult"]).decode()
        assert f"line {number}\nno line break" in log
        assert MARKER not in log


def slow_lines() -> Iterator[str]:
    """The lines of an environment whose reader has no processor for a while."""
    yield "first\n"
    time.sleep(0.2)
    yield "second\n"
    yield f"{MARKER}\n"


def test_a_line_that_arrives_late_is_in_the_log() -> None:
    worker = lambda_runtime.Worker("f", {"Runtime": "python3.13"}, b"")
    worker._proc = SimpleNamespace(stderr=slow_lines())
    worker._stderr_thread = threading.Thread(target=worker._read_stderr)
    worker._stderr_thread.start()
    drain = read_to_marker(lambda_runtime.Worker._drain_stderr_bounded)
    assert drain(worker) == "first\nsecond"


def test_the_log_of_an_environment_that_has_ended_has_no_marker() -> None:
    worker = lambda_runtime.Worker("f", {"Runtime": "python3.13"}, b"")
    worker._proc = SimpleNamespace(stderr=iter(["last\n"]))
    worker._stderr_thread = threading.Thread(target=worker._read_stderr)
    worker._stderr_thread.start()
    drain = read_to_marker(lambda_runtime.Worker._drain_stderr_bounded)
    assert drain(worker) == "last"
