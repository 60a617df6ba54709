"""The token refresher (optional): refreshes the token on a schedule, on a chatbot's request, and at deployments.

With it, only this function has the API's credentials. It uses the same token lock, so two invocations may overlap.
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

# Short, because a sender waits for the answer. The lock repeats failed reads of the token item; other failed calls are
# not repeated beyond these attempts.
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
    """Refresh the token; return the stored generation, or why there is no new token.

    An event is CloudFormation's if it has `ResponseURL`, the chatbot's if it has `release_code`, else the schedule's.
    """
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
    # Always SUCCESS: the credentials may be stored after the deployment. Then the first message causes a refresh.
    custom_resource.answer(event, ITEM_NAME, data=outcome)
    return outcome


def _refresh(release_code: str | None, seconds: float) -> dict[str, str]:
    try:
        return {"Generation": str(_token.refresh(release_code, within=seconds))}
    except TokenError as error:
        logger.error("Could not refresh the token", reason=str(error))
        return {"Refused": str(error)}


cold_start.over()
