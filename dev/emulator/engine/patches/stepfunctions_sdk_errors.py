"""Errors of `aws-sdk:sqs` and `aws-sdk:sfn` tasks have the names that a Catch matches on AWS.

AWS: "Learning to use AWS service SDK integrations in Step Functions": the error is the service's prefix and the name
of the Java SDK's exception, `Sqs.MessageNotInflightException`, `Sfn.TaskTimedOutException`; an error without such a
class is `Sqs.SqsException` or `Sfn.SfnException`.
MiniStack does not find the code in SQS's XML, names every error of SQS `Sqs.ServiceException`, and adds no `Exception`
to the codes of Step Functions.
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
    """Name the errors of both services."""
    wrap(sfn, "_dispatch_aws_sdk_query", _dispatch)
    wrap(sfn, "_prefix_sdk_error", _prefix)


def _prefix(original: Callable[[str, str], str], service: str, code: str) -> str:
    if service != "sfn" or code.startswith("States."):
        return original(service, code)
    modelled = code in {shape.name for shape in sfn._service_model("states").error_shapes}
    return f"Sfn.{code.removesuffix('Exception')}Exception" if modelled else "Sfn.SfnException"


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
