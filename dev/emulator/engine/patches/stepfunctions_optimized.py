"""The optimized integrations `sqs:sendMessage` and `sns:publish`: the names of their errors, and their results.

AWS: recorded in tests/conformance/test_stepfunctions.py. An error has the name of the older Java SDK's exception, and
its cause the service, the status and the code; a result contains the metadata of the HTTP call.
MiniStack names the errors SQS.<code> and SNS.PublishFailed, and returns only the API's fields.
"""

import re
import secrets
from collections.abc import Callable
from html import unescape
from typing import Any

from dev.emulator.engine.emulator import PatchError, sqs
from dev.emulator.engine.emulator import stepfunctions as sfn
from dev.emulator.engine.patches.stepfunctions_tasks import refusal_cause

SEND = "arn:aws:states:::sqs:sendMessage"
PUBLISH = "arn:aws:states:::sns:publish"


def apply() -> None:
    """Register both resources."""
    for resource, make in ((SEND, _send), (PUBLISH, _publish)):
        if resource not in sfn._SERVICE_DISPATCH:
            raise PatchError(f"{sfn.__name__} has no {resource} any more")
        sfn._SERVICE_DISPATCH[resource] = make(sfn._SERVICE_DISPATCH[resource])


def sdk_metadata() -> dict[str, Any]:
    """What a result contains of the HTTP call."""
    request = secrets.token_hex(16)
    headers = {"x-amzn-RequestId": request, "Content-Type": "application/x-amz-json-1.0"}
    http = {"AllHttpHeaders": {name: [value] for name, value in headers.items()}, "HttpHeaders": headers}
    return {"SdkHttpMetadata": http | {"HttpStatusCode": 200}, "SdkResponseMetadata": {"RequestId": request}}


def _send(original: Callable[..., Any]) -> Callable[..., Any]:
    def send(resource: str, arguments: dict[str, Any]) -> Any:
        if arguments.get("MessageBody") is None:
            raise _refused_by_sqs("MissingParameter", "The request must contain the parameter MessageBody.")
        try:
            return original(resource, arguments) | sdk_metadata()
        except sfn._ExecutionError as error:
            if not isinstance(error.__context__, sqs._Err):
                raise
            raise _refused_by_sqs(error.error.removeprefix("SQS."), error.cause) from None

    return send


def _refused_by_sqs(code: str, message: str) -> Exception:
    error: Exception = sfn._ExecutionError("SQS.AmazonSQSException", refusal_cause(message, "AmazonSQS", 400, code))
    return error


def _publish(original: Callable[..., Any]) -> Callable[..., Any]:
    def publish(resource: str, arguments: dict[str, Any]) -> Any:
        try:
            return original(resource, arguments) | sdk_metadata()
        except sfn._ExecutionError as error:
            found = re.search(r"<Code>(.*?)</Code>\s*<Message>(.*?)</Message>", error.cause, re.DOTALL)
            if found is None:
                raise
            code, status = found.group(1), 404 if found.group(1) == "NotFound" else 400
            cause = refusal_cause(unescape(found.group(2)), "AmazonSNS", status, code)
            raise sfn._ExecutionError(f"SNS.{code.removesuffix('Exception')}Exception", cause) from None

    return publish
