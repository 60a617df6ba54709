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
            raise _refusal("SQS.AmazonSQSException", "AmazonSQS", 400, *_MISSING_BODY)
        try:
            return original(resource, arguments) | sdk_metadata()
        except sfn._ExecutionError as error:
            if not isinstance(error.__context__, sqs._Err):
                raise
            code = error.error.removeprefix("SQS.")
            raise _refusal("SQS.AmazonSQSException", "AmazonSQS", 400, code, error.cause) from None

    return send


_MISSING_BODY = ("MissingParameter", "The request must contain the parameter MessageBody.")


def _publish(original: Callable[..., Any]) -> Callable[..., Any]:
    def publish(resource: str, arguments: dict[str, Any]) -> Any:
        try:
            return original(resource, arguments) | sdk_metadata()
        except sfn._ExecutionError as error:
            found = re.search(r"<Code>(.*?)</Code>\s*<Message>(.*?)</Message>", error.cause, re.DOTALL)
            if found is None:
                raise
            code, text = found.group(1), unescape(found.group(2))
            status = 404 if code == "NotFound" else 400
            name = f"SNS.{code.removesuffix('Exception')}Exception"
            raise _refusal(name, "AmazonSNS", status, code, text) from None

    return publish


def _refusal(name: str, service: str, status: int, code: str, text: str) -> Exception:
    about = f"(Service: {service}; Status Code: {status}; Error Code: {code}; Request ID: 0; Proxy: null)"
    error: Exception = sfn._ExecutionError(name, f"{text} {about}")
    return error
