"""Answers a greeting through an API with a single token, which all instances share."""

from __future__ import annotations

from slotkeeper import cold_start

# isort: split
import json
import os
from typing import Any

import boto3
from aws_lambda_powertools.utilities.typing import LambdaContext
from botocore.exceptions import BotoCoreError, ClientError
from chat_api import UNREACHABLE_PAUSE, ChatApi

from slotkeeper.aws.clients import client_config
from slotkeeper.token import AuthenticationNotAttempted, SharedToken, Timing, TokenTable

ITEM_NAME = "greeter"  # one item for each account of the API
ANSWER_SECONDS = 3.0  # for one `POST /answers`
END_SECONDS = 0.5  # for the end of the invocation

dynamodb = boto3.client("dynamodb", config=client_config(read_timeout=1, attempts=2))
secretsmanager = boto3.client("secretsmanager", config=client_config(read_timeout=1, attempts=1))


def credentials() -> dict[str, str]:
    """Read the secret. It is read at each `POST /auth`, so that a changed one takes effect."""
    try:
        secret = secretsmanager.get_secret_value(SecretId=os.environ["CREDENTIALS_SECRET"])
        fields: dict[str, str] = json.loads(secret["SecretString"])
    except (BotoCoreError, ClientError, ValueError) as error:
        code = error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
        reason = f"the secret in the output CredentialsSecretArn cannot be read: {code}"
        raise AuthenticationNotAttempted(reason, pause=UNREACHABLE_PAUSE) from None
    return fields


def share_token(api: ChatApi, timing: Timing) -> SharedToken:
    """Return the token that all instances share. Instances with the same item need the same timing."""
    table = TokenTable(dynamodb, os.environ["TOKEN_TABLE_NAME"])
    return SharedToken(
        table,
        ITEM_NAME,
        api.authenticate,
        still_valid=api.still_valid,
        timing=timing,
        report=print,  # a log line for each refresh, wait, take-over and refusal, without the token
    )


api = ChatApi(os.environ["API_URL"], credentials)
shared = share_token(api, Timing.for_timeout(float(os.environ["TIMEOUT_SECONDS"])))


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, str]:
    """Answer {"text": "..."} with {"answer": "..."}."""
    text = event.get("text")
    if not isinstance(text, str) or not text:
        raise ValueError('the event must be {"text": "..."} with a text that is not empty; nothing was sent to the API')

    def left() -> float:
        return context.get_remaining_time_in_millis() / 1000 - END_SECONDS

    def answer(token: str) -> str:
        return api.answer(text, token, min(ANSWER_SECONDS, left()))

    return {"answer": shared.call(answer, within=left() - ANSWER_SECONDS)}


cold_start.over()
