"""lambda_code: environments that start together unpack nothing of their own."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from local.aws import EmbeddedAws
from tests.engine.conftest import zipped

WHERE = """
import os, time
def handler(event, context):
    time.sleep(event["seconds"])
    return {"process": os.getpid(), "file": os.path.realpath(__file__), "said": SAID}
"""


def called(aws: EmbeddedAws, name: str, seconds: float = 0) -> dict[str, Any]:
    answer = aws.client("lambda").invoke(FunctionName=name, Payload=json.dumps({"seconds": seconds}))
    said: dict[str, Any] = json.loads(answer["Payload"].read())
    return said


def test_environments_of_a_function_share_its_code(aws: EmbeddedAws, function: Callable[..., str]) -> None:
    name = function(WHERE.replace("SAID", "1"))
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: called(aws, name, seconds=0.5), range(2))
    assert first["process"] != second["process"]
    assert first["file"] == second["file"]


def test_changed_code_is_another_copy(aws: EmbeddedAws, function: Callable[..., str]) -> None:
    one, two = function(WHERE.replace("SAID", "1")), function(WHERE.replace("SAID", "2"))
    assert (called(aws, one)["said"], called(aws, two)["said"]) == (1, 2)
    code = zipped(WHERE.replace("SAID", "3"))
    aws.client("lambda").update_function_code(FunctionName=one, ZipFile=code)
    assert (called(aws, one)["said"], called(aws, two)["said"]) == (3, 2)
