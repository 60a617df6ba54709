"""Client of the third-party API that answers chat messages. Each `POST /auth` ends all earlier tokens.

    POST /auth     {client_id, client_secret}        200 {"access_token": ...}
    GET  /me       Bearer token                      200 if the token is valid, 401 if not; others state neither
    POST /answers  Bearer token, {text, conversation?}    200 {"answer": ...}, 401

No error message contains anything that the API has sent, because that may contain a secret.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from slotkeeper.chatbot.credentials import Credentials, UnreadableSecret, UnusableSecret
from slotkeeper.chatbot.messages import ChatMessage
from slotkeeper.token import (
    AuthenticationNotAttempted,
    AuthenticationRefused,
    HttpAnswer,
    HttpClient,
    HttpFailed,
    NoConnection,
    NotSent,
    Unauthorized,
)

# Seconds for which no instance requests a token after one of them could not connect: the API is down more often than
# one container's network.
NO_CONNECTION_PAUSE = 2.0

# The characters that a header may contain. http.client refuses others with an error message that contains the token.
_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}", re.ASCII)


class ChatApiFailed(Exception):
    """The API gave no usable answer. The message states its answer. The request may have been carried out."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after  # seconds; None if the API sent no Retry-After


class ChatApi:
    """A client with its own connections.

    Args:
        url: the API's base URL.
        credentials: called for every `authenticate`; may raise UnusableSecret.
    """

    def __init__(self, url: str, credentials: Callable[[], Credentials]) -> None:
        self._url = url.rstrip("/")
        self._credentials = credentials
        self._http = HttpClient()

    def authenticate(self, seconds: float) -> str:
        """Request a new token, within `seconds`. This ends every earlier token, even if the answer is lost.

        Raises:
            AuthenticationNotAttempted: the API certainly did not receive the request.
            AuthenticationRefused: the API gave no token. The message states why.
        """
        started = time.monotonic()
        try:
            credentials = self._credentials()
            body = {"client_id": credentials.client_id, "client_secret": credentials.client_secret}
            answer = self._ask("POST", "/auth", seconds - (time.monotonic() - started), body)
        except NoConnection as error:
            raise AuthenticationNotAttempted(str(error), pause=NO_CONNECTION_PAUSE) from None
        except (NotSent, UnreadableSecret) as error:
            raise AuthenticationNotAttempted(str(error)) from None
        except ChatApiFailed as error:
            raise AuthenticationRefused(str(error), error.retry_after) from None
        except (HttpFailed, UnusableSecret) as error:
            raise AuthenticationRefused(str(error)) from None
        if answer.status != 200:
            hint = ": the credentials may be wrong" if answer.status in (400, 401, 403) else ""
            raise AuthenticationRefused(f"POST /auth was answered with HTTP {answer.status}{hint}")
        token = answer.fields().get("access_token")
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise AuthenticationRefused("the answer to POST /auth contains no usable access_token")
        return token

    def is_valid(self, token: str, seconds: float) -> bool:
        """Check whether the API accepts a token, without side effects.

        Raises:
            HttpFailed: the API did not answer.
            AuthenticationRefused: its answer does not state it.
        """
        if not _TOKEN.fullmatch(token):
            return False  # `answer` treats such a token as invalid too; a different result would never resolve
        try:
            answer = self._ask("GET", "/me", seconds, token=token)
        except ChatApiFailed as error:
            raise AuthenticationRefused(str(error), error.retry_after) from None
        if answer.status not in (200, 401):  # with 403, for example, the API may know the token
            raise AuthenticationRefused(f"GET /me was answered with HTTP {answer.status}, neither 200 nor 401")
        return answer.status == 200

    def answer(self, message: ChatMessage, token: str, seconds: float) -> str:
        """Return the API's answer to a message, within `seconds`.

        Raises:
            Unauthorized: the API answered 401 and did not handle the message.
            ChatApiFailed: the API gave no usable answer.
        """
        if not _TOKEN.fullmatch(token):
            raise Unauthorized
        body = {"text": message.text}
        if message.conversation is not None:
            body["conversation"] = message.conversation
        try:
            answer = self._ask("POST", "/answers", seconds, body, token)
        except HttpFailed as error:
            raise ChatApiFailed(str(error)) from None
        if answer.status == 401:
            raise Unauthorized
        text = answer.fields().get("answer")
        if answer.status != 200 or not isinstance(text, str):
            what = f"HTTP {answer.status}" if answer.status != 200 else 'HTTP 200 without a text in "answer"'
            raise ChatApiFailed(f"POST /answers was answered with {what}")
        return text

    def _ask(
        self, method: str, path: str, seconds: float, body: dict[str, str] | None = None, token: str = ""
    ) -> HttpAnswer:
        """Send a request. Raises HttpFailed without an answer in time, ChatApiFailed for a 429 or a 5xx."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = self._http.request(method, self._url + path, seconds, json_body=body, headers=headers)
        if answer.status == 429 or answer.status >= 500:
            raise ChatApiFailed(f"{method} {path} was answered with HTTP {answer.status}", answer.retry_after)
        return answer
