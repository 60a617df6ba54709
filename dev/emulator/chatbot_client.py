"""A client of the deployed chatbot: sets its credentials, and sends signed messages."""

from __future__ import annotations

import contextlib
import hmac
import http.client
import json
import secrets
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from dev.emulator.aws import EmbeddedAws

# Seconds. API Gateway ends after 29; the embedded AWS does not, and may have a container to start.
TIMEOUT = 60.0
# Parameters for tests that send more messages at the same time than a chat service does.
UNTHROTTLED = {"ChatbotRate": "10000", "ChatbotBurst": "5000"}


class Unanswered(Exception):
    """The message has no answer; the text names the component that refused it, and the reason."""


def signed(key: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of a request, computed from the documented contract alone. `timestamp` is in epoch seconds."""
    digest = hmac.new(key.encode(), f"v1:{timestamp}:".encode() + body, "sha256").hexdigest()
    return {
        "Content-Type": "application/json",
        "X-Slotkeeper-Timestamp": str(timestamp),
        "X-Slotkeeper-Signature": f"v1={digest}",
    }


def first_key(secret: str) -> str:
    """One of the keys in the text of a stack's signing key secret."""
    keys = json.loads(secret)
    return str(keys["signing_key"] if "signing_key" in keys else keys["signing_keys"][0])


def give_credentials(aws: EmbeddedAws, client_id: str, client_secret: str) -> None:
    """Store the chat API's credentials in the secret that the chatbot reads."""
    value = json.dumps({"client_id": client_id, "client_secret": client_secret})
    aws.client("secretsmanager").put_secret_value(SecretId=aws.outputs["ApiCredentialsSecretArn"], SecretString=value)


def signing_key(aws: EmbeddedAws) -> str:
    """The key with which senders sign."""
    answer = aws.client("secretsmanager").get_secret_value(SecretId=aws.outputs["SigningKeySecretArn"])
    return first_key(answer["SecretString"])


def post(url: str, body: bytes, headers: Mapping[str, str], timeout: float = TIMEOUT) -> tuple[int, bytes]:
    """The status and content of the answer. Each request has its own connection, so none expires between two."""
    at = urlsplit(url)
    connection = http.client.HTTPConnection(str(at.hostname), at.port, timeout=timeout)
    with contextlib.closing(connection):
        connection.request("POST", at.path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read()


def ask(aws: EmbeddedAws, text: str) -> str:
    """Sign one message, send it to the deployed chatbot, and return its answer. Raises Unanswered."""
    if not aws.chatbot_url:
        raise Unanswered("no chatbot is deployed here: run `make local-up`")
    body = json.dumps({"message_id": secrets.token_hex(8), "text": text}).encode()
    headers = signed(signing_key(aws), int(time.time()), body)
    try:
        status, content = post(aws.chatbot_url, body, headers)
    except (OSError, http.client.HTTPException) as error:
        raise Unanswered(f"no answer from {aws.chatbot_url}: {type(error).__name__}") from None
    try:
        answer = json.loads(content)
        if status == 200:
            return str(answer["answer"])
        raise Unanswered(f"{status} {answer['code']}: {answer['reason']}")
    except (ValueError, TypeError, KeyError):  # not the chatbot's own answer
        raise Unanswered(f"{status}: {content.decode(errors='replace')}") from None
