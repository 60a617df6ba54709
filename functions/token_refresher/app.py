"""The token's one writer, where the stack has one: on a schedule, when an instance of the chatbot asks, at deployments.

Only this function has the credentials then. It goes by the same lock as everybody else, so it may run twice at once.
"""

from __future__ import annotations

from slotkeeper import cold_start

# isort: split
from typing import Any

import boto3
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from slotkeeper.aws import custom_resource
from slotkeeper.aws.clients import client_config
from slotkeeper.chatbot.api import ChatApi
from slotkeeper.chatbot.credentials import Secrets
from slotkeeper.chatbot.token import ITEM_NAME, report, timing
from slotkeeper.observability import logger, metrics, tracer
from slotkeeper.settings import CredentialsSettings, TokenSettings, load_settings
from slotkeeper.token import SharedToken, TokenError, TokenTable

# A sender waits for the answer. The lock reads the token item again by itself when a call fails; nothing repeats the
# other calls.
_token_item_config = client_config(read_timeout=1, attempts=2)
_client_config = client_config(read_timeout=2, attempts=2)
_settings = load_settings(CredentialsSettings)
_shared = load_settings(TokenSettings)
_secrets = Secrets(boto3.client("secretsmanager", config=_client_config))
_token = SharedToken(
    TokenTable(boto3.client("dynamodb", config=_token_item_config), _shared.token_table_name),
    ITEM_NAME,
    ChatApi(_shared.chat_api_url, lambda: _secrets.credentials(_settings.api_credentials_secret)).authenticate,
    timing=timing(_shared.token_min_refresh_seconds),
    report=report,
)


@metrics.log_metrics
@tracer.capture_lambda_handler(capture_response=False)
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, str]:
    """Answers the generation that is stored, or why there is no new token. What is neither an ask of the chatbot's nor
    CloudFormation's is the schedule."""
    metrics.add_metric("TokenRefresherRuns", MetricUnit.Count, 1)
    left = context.get_remaining_time_in_millis() / 1000 - custom_resource.ANSWER_SECONDS
    if "ResponseURL" not in event:
        return _refresh(event.get("release_code"), left)
    outcome = {}
    try:
        if event["RequestType"] != "Delete":
            outcome = custom_resource.until_the_role_is_known(_refresh)(None, left)
    except Exception as error:
        logger.exception("Could not refresh the token")
        outcome = {"Refused": type(error).__name__}
    # SUCCESS in every case: the credentials may be put after the deployment, and the first message refreshes then.
    custom_resource.answer(event, ITEM_NAME, data=outcome)
    return outcome


def _refresh(release_code: str | None, seconds: float) -> dict[str, str]:
    try:
        return {"Generation": str(_token.refresh(release_code, within=seconds))}
    except TokenError as error:
        logger.error("There is no new token", reason=str(error))
        return {"Refused": str(error)}


cold_start.over()
