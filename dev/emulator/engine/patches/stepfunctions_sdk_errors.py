"""Errors of `aws-sdk:sqs` tasks have the names that a Catch matches on AWS.

AWS: "Learning to use AWS service SDK integrations in Step Functions": the error is the service's prefix and the name
of the Java SDK's exception, `Sqs.MessageNotInflightException`; an error without such a class is `Sqs.SqsException`.
MiniStack does not find the code in SQS's XML, and names every error `Sqs.ServiceException`.
"""

import re
from collections.abc import Callable
from html import unescape
from typing import Any

from dev.emulator.engine.emulator import stepfunctions as sfn
from dev.emulator.engine.emulator import wrap

MODELLED = {
    "InvalidAddress",
    "InvalidMessageContents",
    "InvalidSecurity",
    "MessageNotInflight",
    "OverLimit",
    "PurgeQueueInProgress",
    "QueueDeletedRecently",
    "QueueDoesNotExist",
    "QueueNameExists",
    "ReceiptHandleIsInvalid",
    "RequestThrottled",
    "UnsupportedOperation",
}


def apply() -> None:
    """Name SQS's errors."""
    wrap(sfn, "_dispatch_aws_sdk_query", _dispatch)


def _dispatch(original: Callable[..., Any], info: Any, service: str, action: str, given: Any) -> Any:
    try:
        return original(info, service, action, given)
    except sfn._ExecutionError as error:
        if service != "sqs":
            raise
        match = re.search(r"<Code>(.*?)</Code><Message>(.*?)</Message>", error.cause, re.DOTALL)
        if match is None:
            raise
        name = match.group(1).rsplit(".", 1)[-1]  # the code is AWS.SimpleQueueService.MessageNotInflight
        kind = f"{name}Exception" if name in MODELLED else "SqsException"
        raise sfn._ExecutionError(f"Sqs.{kind}", f"{unescape(match.group(2))} (Service: Sqs)") from None
