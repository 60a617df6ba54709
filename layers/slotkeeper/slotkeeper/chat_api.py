"""The third-party API that answers chat messages. It allows one token at a time: each `POST /auth` ends all others.

    POST /auth     {client_id, client_secret}        200 {"access_token": ...}
    GET  /me       Bearer token                      200 if the token is valid, else 401
    POST /answers  Bearer token, {text, conversation?}    200 {"answer": ...}, 401

No text of an error holds anything that the API has sent: nobody knows what it repeats there.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import urllib3

from slotkeeper.chat_messages import ChatMessage
from slotkeeper.credentials import Credentials, UnusableSecret
from slotkeeper.token_lock import AuthenticationRefused, Unauthorized

CONNECT_SECONDS = 2.0
LARGEST_ANSWER = 1_000_000  # bytes
# For how many seconds a connection may have been idle and is still used. A container is frozen between two messages.
# That the other end has hung up, or a NAT gateway forgotten the connection, it learns only by writing, and then the
# request has failed. Nothing is asked twice here, so at a `POST /auth` it would cost everybody a refusal.
LONGEST_IDLE = 5.0

# What may stand in a header. http.client would refuse anything else with an error that repeats it.
_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}", re.ASCII)


class ChatApiFailed(Exception):
    """The API gave no answer that can be used; the text says what it did. A request may have been carried out."""

    def __init__(self, reason: str, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after  # seconds, if the API said so


class ChatApi:
    """A client with connections of its own.

    Args:
        url: the API's base, without a slash at its end.
        credentials: called for every `authenticate`; may raise UnusableSecret.
    """

    def __init__(self, url: str, credentials: Callable[[], Credentials]) -> None:
        self._url = url
        self._credentials = credentials
        # `POST /auth` and `POST /answers` must not happen twice without anybody's knowing.
        self._http = urllib3.PoolManager(retries=False, maxsize=2)
        self._last_asked = 0.0

    def authenticate(self, seconds: float) -> str:
        """A new token, within `seconds`. It ends every earlier one, also if its answer is lost.

        Raises:
            AuthenticationRefused: there is none; the text says why.
        """
        began = time.monotonic()
        try:
            credentials = self._credentials()
            body = {"client_id": credentials.client_id, "client_secret": credentials.client_secret}
            status, answer = self._ask("POST", "/auth", seconds - (time.monotonic() - began), body)
        except (ChatApiFailed, UnusableSecret) as error:
            raise AuthenticationRefused(str(error)) from None
        if status != 200:
            hint = ": the credentials may be wrong" if status in (400, 401, 403) else ""
            raise AuthenticationRefused(f"POST /auth was answered with HTTP {status}{hint}")
        token = answer.get("access_token")
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise AuthenticationRefused("the answer to POST /auth holds no usable access_token")
        return token

    def is_valid(self, token: str, seconds: float) -> bool:
        """Whether the API accepts a token, asked without any effect. Raises ChatApiFailed if it does not say."""
        if not _TOKEN.fullmatch(token):
            return False  # as `answer` holds it, or that and the probe would disagree for ever
        status, _ = self._ask("GET", "/me", seconds, token=token)
        return status == 200

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
        status, answer = self._ask("POST", "/answers", seconds, body, token)
        if status == 401:
            raise Unauthorized
        if status != 200 or not isinstance(answer.get("answer"), str):
            what = f"HTTP {status}" if status != 200 else "an answer that is not what it promises"
            raise ChatApiFailed(f"POST /answers was answered with {what}")
        return str(answer["answer"])

    def _ask(
        self, method: str, path: str, seconds: float, body: dict[str, str] | None = None, token: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """Status and JSON object of an answer. Raises ChatApiFailed if there is none in time, or for a 429 or a 5xx."""
        asked = f"{method} {path}"
        if seconds <= 0:
            raise ChatApiFailed(f"no time was left for {asked}")
        deadline = time.monotonic() + seconds
        self._forget_idle_connections()
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        try:
            response = self._http.request(
                method,
                self._url + path,
                body=json.dumps(body).encode() if body is not None else None,
                headers=headers,
                timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, seconds), total=seconds),
                # Credentials must not go to wherever an answer says. Without this urllib3 reads a Location all the
                # same, and an error of its own repeats what is wrong with it.
                redirect=False,
                preload_content=False,
            )
            content = _read(response, asked, deadline)
        except urllib3.exceptions.NewConnectionError:  # to urllib3 a kind of timeout
            raise ChatApiFailed(f"{asked} failed: no connection") from None
        except urllib3.exceptions.TimeoutError:
            raise ChatApiFailed(f"{asked} was not answered within {seconds:.1f} s") from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ChatApiFailed(f"{asked} failed: {type(error).__name__}") from None
        if response.status == 429 or response.status >= 500:
            retry_after = response.headers.get("Retry-After", "")
            seconds_told = int(retry_after) if re.fullmatch(r"[0-9]{1,5}", retry_after, re.ASCII) else None
            raise ChatApiFailed(f"{asked} was answered with HTTP {response.status}", seconds_told)
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = {}
        return response.status, answer if isinstance(answer, dict) else {}

    def _forget_idle_connections(self) -> None:
        now = time.time()  # the monotonic clock may stand still while a container is frozen
        if not 0 <= now - self._last_asked <= LONGEST_IDLE:
            self._http.clear()
        self._last_asked = now


def _read(response: urllib3.BaseHTTPResponse, asked: str, deadline: float) -> bytes:
    """The whole body. urllib3's timeout starts anew with every piece of it, and an answer may come in drops."""
    content = b""
    while piece := response.read1(65536):
        content += piece
        if time.monotonic() > deadline or len(content) > LARGEST_ANSWER:
            response.close()
            raise ChatApiFailed(f"the answer to {asked} was too slow or too large")
    response.release_conn()
    return content
