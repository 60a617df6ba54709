"""lambda_endpoint: a function calls the engine, also with the template's empty endpoint."""

import json
from collections.abc import Callable

from dev.emulator.aws import EmbeddedAws

APP = """
import os

def handler(event, context):
    return os.environ["AWS_ENDPOINT_URL"]
"""


def test_a_function_with_an_empty_endpoint_calls_the_engine(aws: EmbeddedAws, function: Callable[..., str]) -> None:
    name = function(APP, Environment={"Variables": {"AWS_ENDPOINT_URL": ""}})
    answer = aws.client("lambda").invoke(FunctionName=name, Payload=b"{}")
    assert json.loads(answer["Payload"].read()) == aws.endpoint
