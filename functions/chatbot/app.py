"""The chatbot: answers a chat service's signed messages through a third-party API, with one token for all instances."""

from __future__ import annotations

from slotkeeper import cold_start

# isort: split
import base64
import binascii
import json
from typing import Any

import boto3
from aws_lambda_powertools.event_handler import APIGatewayRestResolver, Response, content_types
from aws_lambda_powertools.logging import correlation_paths
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from slotkeeper.aws.clients import client_config
from slotkeeper.chatbot.api import ChatApi
from slotkeeper.chatbot.credentials import Secrets
from slotkeeper.chatbot.service import Answered, Chatbot, Refused, Reply, SignedRequest
from slotkeeper.chatbot.signatures import SeenSignatures
from slotkeeper.chatbot.token import ITEM_NAME, Refresher, report, timing
from slotkeeper.observability import logger, metrics, tracer
from slotkeeper.settings import ChatbotSettings, CredentialsSettings, TokenSettings, load_settings
from slotkeeper.token import DelegateRefresh, SharedToken, TokenTable

ROUTE = "/messages"
# API Gateway times out after 29 s (API Gateway guide, "Quotas for configuring and running a REST API"). These include a
# cold start, which this function's timeout of 28 s does not. So the answer is ready this many seconds before that.
ANSWER_MARGIN_SECONDS = 2.0

# Short, because a sender waits for the answer. The lock repeats failed reads of the token item; other failed calls are
# not repeated beyond these attempts.
_token_item_config = client_config(read_timeout=1, attempts=2)
_client_config = client_config(read_timeout=2, attempts=2)
_settings = load_settings(ChatbotSettings)
_shared = load_settings(TokenSettings)
_credentials_secret = (
    "" if _settings.token_refresher_function else load_settings(CredentialsSettings).api_credentials_secret
)
_secrets = Secrets(boto3.client("secretsmanager", config=_client_config))
_api = ChatApi(_shared.chat_api_url, lambda: _secrets.credentials(_credentials_secret))
_token = SharedToken(
    TokenTable(boto3.client("dynamodb", config=_token_item_config), _shared.token_table_name),
    ITEM_NAME,
    DelegateRefresh(Refresher(boto3.client("lambda", config=_client_config), _settings.token_refresher_function).ask)
    if _settings.token_refresher_function
    else _api.authenticate,
    still_valid=_api.is_valid,
    timing=timing(_shared.token_min_refresh_seconds),
    report=report,
)
_chatbot = Chatbot(
    lambda: _secrets.signing_keys(_settings.signing_key_secret),
    SeenSignatures(boto3.client("dynamodb", config=_client_config), _settings.seen_signature_table_name),
    _token,
    _api,
)
app = APIGatewayRestResolver()


@metrics.log_metrics(capture_cold_start_metric=True)
@tracer.capture_lambda_handler(capture_response=False)  # traces must not contain messages
@logger.inject_lambda_context(correlation_id_path=correlation_paths.API_GATEWAY_REST, clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer in JSON. An error has `code`, `reason` and the `request_id` that its log lines have too."""
    # Resolve by `resource`, because `path` starts with the base path of a custom domain.
    return app.resolve(event | {"path": event.get("resource") or event["path"]}, context)


@app.post(ROUTE)
def answer_message() -> Response[str]:
    def left() -> float:
        return float(app.lambda_context.get_remaining_time_in_millis() / 1000 - ANSWER_MARGIN_SECONDS)

    event = app.current_event
    try:
        body = (event.body or "").encode()
        body = base64.b64decode(body, validate=True) if event.is_base64_encoded else body
        request = SignedRequest(event.headers, body, app.lambda_context.aws_request_id)
        return _respond(_chatbot.reply(request, left))
    except (binascii.Error, UnicodeEncodeError):
        return _respond(Refused(400, "MalformedMessage", "body must be UTF-8 text or base64"))
    except Exception:
        logger.exception("Could not answer the message")
        return _respond(Refused(500, "InternalError", "an unexpected error; the chatbot's log has the cause"))


@app.not_found
def no_such_route(_: Exception) -> Response[str]:
    if app.current_event.path == ROUTE:
        return _respond(Refused(405, "MethodNotAllowed", f"method not allowed; send messages with POST {ROUTE}"))
    return _respond(Refused(404, "NotFound", f"unknown path; send messages with POST {ROUTE}"))


def _respond(reply: Reply) -> Response[str]:
    if isinstance(reply, Answered):
        logger.info("Answered the message", message_id=reply.message_id)
        metrics.add_metric("MessagesAnswered", MetricUnit.Count, 1)
        return _json(200, {"message_id": reply.message_id, "answer": reply.answer})
    is_failure = reply.status >= 500
    log = logger.error if is_failure else logger.warning
    fields = {"code": reply.code, "reason": reply.reason, "message_id": reply.message_id}
    log(
        "Did not answer the message",
        extra=fields | {"status": reply.status, "cause": reply.cause and repr(reply.cause)},
    )
    metrics.add_metric("MessagesFailed" if is_failure else "MessagesRefused", MetricUnit.Count, 1)
    if reply.code == "ChatApiFailed":
        metrics.add_metric("ChatApiFailures", MetricUnit.Count, 1)
    fields["request_id"] = app.current_event.request_context.request_id
    headers = {"Retry-After": str(reply.retry_after)} if reply.retry_after is not None else {}
    return _json(reply.status, {name: value for name, value in fields.items() if value is not None}, headers)


def _json(status: int, body: dict[str, str | None], headers: dict[str, str] | None = None) -> Response[str]:
    return Response(status, content_types.APPLICATION_JSON, json.dumps(body), headers=dict(headers or {}))


cold_start.over()
