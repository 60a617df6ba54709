"""lambda_code: environments that start together share one unpacked copy."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dev.emulator.aws import EmbeddedAws
from tests.engine.conftest import zipped

WHERE = """
import os, pathlib, time
def handler(event, context):
    if "meet" in event:
        folder = pathlib.Path(event["meet"])
        (folder / str(os.getpid())).touch()
        while len(list(folder.iterdir())) < 2:
            time.sleep(0.02)
    return {"process": os.getpid(), "file": os.path.realpath(__file__), "number": NUMBER}
"""


def called(aws: EmbeddedAws, name: str, **event: str) -> dict[str, Any]:
    answer = aws.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event))
    response: dict[str, Any] = json.loads(answer["Payload"].read())
    return response


def test_environments_of_a_function_share_its_code(
    aws: EmbeddedAws, function: Callable[..., str], tmp_path: Path
) -> None:
    name = function(WHERE.replace("NUMBER", "1"), Timeout=600)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: called(aws, name, meet=str(tmp_path)), range(2))
    assert first["process"] != second["process"]
    assert first["file"] == second["file"]


def test_changed_code_is_another_copy(aws: EmbeddedAws, function: Callable[..., str]) -> None:
    one, two = function(WHERE.replace("NUMBER", "1")), function(WHERE.replace("NUMBER", "2"))
    assert (called(aws, one)["number"], called(aws, two)["number"]) == (1, 2)
    code = zipped(WHERE.replace("NUMBER", "3"))
    aws.client("lambda").update_function_code(FunctionName=one, ZipFile=code)
    assert (called(aws, one)["number"], called(aws, two)["number"]) == (3, 2)
