"""The chatbot's token for the chatbot and the refresher: its name, its times, and the metrics of its events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aws_lambda_powertools.metrics import MetricUnit
from botocore.exceptions import ClientError

from slotkeeper.observability import logger, metrics
from slotkeeper.token import (
    AuthenticationFailed,
    AuthenticationRefused,
    RefreshAbandoned,
    Refreshed,
    StoredTooLate,
    Timing,
    TokenEvent,
    TookOver,
    Waited,
)

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

ITEM_NAME = "chatbot"

# With these errors Lambda has not invoked the function, and a retry would not help (API Reference, Invoke, Errors).
_NOT_INVOKED_ERRORS = {"AccessDeniedException", "ResourceNotFoundException"}


def timing(min_interval: float) -> Timing:
    """Return the times of the chatbot's token, in seconds. Both functions must use the same.

    `api` allows 4 s for each call of the API, and 0.4 s for reading the credentials. `patience` is enough for the death
    of one holder (the lease, 9.5), a last pause, and the refresh of the instance that takes over (5.5).
    """
    return Timing(api=4.4, store=1.1, clock_skew=2.0, patience=17.0, min_interval=min_interval)


def report(event: TokenEvent) -> None:
    """Write metrics and a log line for an event of the token, without the token."""
    match event:
        case Refreshed(generation, seconds):
            logger.info("Stored a new token", generation=generation, seconds=round(seconds, 3))
            metrics.add_metric("TokenRefreshes", MetricUnit.Count, 1)
        case Waited(seconds):
            logger.info("Waited for the token", seconds=round(seconds, 3))
            metrics.add_metric("TokenWait", MetricUnit.Seconds, seconds)
        case TookOver():
            logger.warning("Took over the refresh: the lock's holder has died or was paused")
            metrics.add_metric("TokenTakeOvers", MetricUnit.Count, 1)
        case AuthenticationFailed(reason):
            logger.error("The API gave no token; messages are not answered until it does", reason=reason)
            metrics.add_metric("TokenRefusals", MetricUnit.Count, 1)
        case RefreshAbandoned(reason):
            logger.error("Could not request a token from the chat API; another instance may refresh", reason=reason)
        case StoredTooLate():
            logger.warning("Got a token after losing the lock; did not store it, and will replace the stored one")
            metrics.add_metric("TokenStoredTooLate", MetricUnit.Count, 1)


class Refresher:
    """The function that refreshes the token for all instances."""

    def __init__(self, lambda_client: LambdaClient, function_name: str) -> None:
        self._lambda = lambda_client
        self._function_name = function_name

    def ask(self, release_code: str) -> None:
        """Invoke the function asynchronously, for `DelegateRefresh`.

        Raises:
            AuthenticationRefused: the function was not invoked, and a retry would not help.
            ClientError, BotoCoreError: it may have been invoked.
        """
        try:
            self._lambda.invoke(
                FunctionName=self._function_name,
                InvocationType="Event",
                Payload=json.dumps({"release_code": release_code}),
            )
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code not in _NOT_INVOKED_ERRORS:
                raise
            raise AuthenticationRefused(f"the function that refreshes the token cannot be invoked: {code}") from error
