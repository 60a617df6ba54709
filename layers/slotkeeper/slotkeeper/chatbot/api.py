"""The third-party API that answers chat messages. It allows one token at a time: each `POST /auth` ends all others.

    POST /auth     {client_id, client_secret}        200 {"access_token": ...}
    GET  /me       Bearer token                      200 if the token is valid, else 401
    POST /answers  Bearer token, {text, conversation?}    200 {"answer": ...}, 401

No text of an error holds anything that the API has sent: nobody knows what it repeats there.
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

# For how many seconds no instance tries to ask for a token after one of them could not connect: the API is down more
# often than one container's network.
NO_CONNECTION_PAUSE = 2.0

# What may stand in a header. http.client would refuse anything else with an error that repeats it.
_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}", re.ASCII)


class ChatApiFailed(Exception):
    """The API gave no answer that can be used; the text says what it did. A request may have been carried out."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after  # seconds, if the API said so


class ChatApi:
    """A client with connections of its own.

    Args:
        url: the API's base.
        credentials: called for every `authenticate`; may raise UnusableSecret.
    """

    def __init__(self, url: str, credentials: Callable[[], Credentials]) -> None:
        self._url = url.rstrip("/")
        self._credentials = credentials
        self._http = HttpClient()

    def authenticate(self, seconds: float) -> str:
        """A new token, within `seconds`. It ends every earlier one, also if its answer is lost.

        Raises:
            AuthenticationNotAttempted: the API was certainly not asked.
            AuthenticationRefused: there is none; the text says why.
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
            raise AuthenticationRefused("the answer to POST /auth holds no usable access_token")
        return token

    def is_valid(self, token: str, seconds: float) -> bool:
        """Whether the API accepts a token, asked without any effect.

        Raises:
            HttpFailed, ChatApiFailed: it does not say.
        """
        if not _TOKEN.fullmatch(token):
            return False  # as `answer` holds it, or that and the probe would disagree for ever
        return self._ask("GET", "/me", seconds, token=token).status == 200

    def answer(self, message: ChatMessage, token: str, seconds: float) -> str:
        """The answer to a message, within `seconds`.

        Raises:
            Unauthorized: the API answered 401, and did nothing.
            ChatApiFailed: see there.
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
            what = f"HTTP {answer.status}" if answer.status != 200 else "an answer that is not what it promises"
            raise ChatApiFailed(f"POST /answers was answered with {what}")
        return text

    def _ask(
        self, method: str, path: str, seconds: float, body: dict[str, str] | None = None, token: str = ""
    ) -> HttpAnswer:
        """Raises HttpFailed if there is no answer in time, ChatApiFailed for a 429 or a 5xx."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = self._http.request(method, self._url + path, seconds, json_body=body, headers=headers)
        if answer.status == 429 or answer.status >= 500:
            raise ChatApiFailed(f"{method} {path} was answered with HTTP {answer.status}", answer.retry_after)
        return answer
