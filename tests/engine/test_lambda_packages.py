"""lambda_packages: a function has boto3, and none of botocore's optional packages."""

import json
from collections.abc import Callable

from dev.emulator.aws import EmbeddedAws

APP = """
import sys
import boto3

def handler(event, context):
    boto3.client("sqs", region_name="us-east-1")
    return sorted({name.partition(".")[0] for name, module in sys.modules.items() if module} & {"awscrt", "OpenSSL"})
"""


def test_a_function_loads_no_package_that_lambda_does_not_have(aws: EmbeddedAws, function: Callable[..., str]) -> None:
    answer = aws.client("lambda").invoke(FunctionName=function(APP), Payload=b"{}")
    assert json.loads(answer["Payload"].read()) == []
