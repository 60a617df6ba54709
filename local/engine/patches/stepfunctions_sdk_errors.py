"""Errors of `aws-sdk:sqs` tasks carry the names that a Catch would have to match on AWS.

AWS: "Learning to use AWS service SDK integrations in Step Functions": the error is the service's prefix and the name
of the Java SDK's exception, `Sqs.MessageNotInflightException`; what the SDK has no class for is `Sqs.SqsException`.
MiniStack passes the wire code on, without `Exception`.
"""

from collections.abc import Callable

from local.engine.emulator import replace
from local.engine.emulator import stepfunctions as sfn

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
    """Rename SQS's codes."""
    replace(sfn, "_prefix_sdk_error", _prefix_sdk_error)


def _prefix_sdk_error(original: Callable[[str, str], str]) -> Callable[[str, str], str]:
    def prefix(service: str, code: str) -> str:
        if service != "sqs" or code.startswith("States."):
            return original(service, code)
        name = code.rsplit(".", 1)[-1]
        return f"Sqs.{name}Exception" if name in MODELLED else "Sqs.SqsException"

    return prefix
