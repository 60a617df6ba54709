"""Client of an API with a single token: each `POST /auth` ends the previous token.

Replace the three requests by those of your API. `SharedToken` calls `authenticate` and `still_valid`, the handler calls
`answer` with the token that it receives.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from slotkeeper.token import (
    AuthenticationNotAttempted,
    AuthenticationRefused,
    HttpAnswer,
    HttpClient,
    NoConnection,
    NotSent,
    Unauthorized,
)

# Seconds for which no instance tries again after a failure that probably affects all of them.
UNREACHABLE_PAUSE = 2.0


class ChatApiFailed(Exception):
    """The API answered neither 200 nor 401."""


class ChatApi:
    """A client with its own connections.

    Args:
        url: the API's base URL.
        credentials: returns the body of `POST /auth`, or raises AuthenticationNotAttempted.
    """

    def __init__(self, url: str, credentials: Callable[[], Mapping[str, str]]) -> None:
        self._url = url.rstrip("/")
        self._credentials = credentials
        self._http = HttpClient()

    def authenticate(self, seconds: float) -> str:
        """Request a new token, within `seconds`."""
        started = time.monotonic()
        credentials = self._credentials()
        left = seconds - (time.monotonic() - started)
        try:
            answer = self._http.request("POST", f"{self._url}/auth", left, json_body=credentials)
        except NoConnection as error:
            raise AuthenticationNotAttempted(str(error), pause=UNREACHABLE_PAUSE) from None
        except NotSent as error:  # reading the credentials took all the time
            raise AuthenticationNotAttempted(str(error)) from None
        if answer.status != 200:  # operators read this text, so it contains no secret
            raise AuthenticationRefused(f"POST /auth was answered with {answer.status}", answer.retry_after)
        token: str = answer.fields().get("access_token", "")
        return token

    def still_valid(self, token: str, seconds: float) -> bool:
        """Check a token by a request that every valid token may make."""
        answer = self._request("GET", "/me", token, seconds)
        if answer.status not in (200, 401):  # an overload, for example, does not show that the token is invalid
            raise AuthenticationRefused(f"GET /me was answered with {answer.status}", answer.retry_after)
        return answer.status == 200

    def answer(self, text: str, token: str, seconds: float) -> str:
        """Return the API's answer to a text. After `Unauthorized`, `SharedToken.call` repeats it with another token."""
        answer = self._request("POST", "/answers", token, seconds, {"text": text})
        if answer.status == 401:
            raise Unauthorized
        if answer.status != 200:
            raise ChatApiFailed(f"POST /answers was answered with {answer.status}")
        return str(answer.fields()["answer"])

    def _request(
        self, method: str, path: str, token: str, seconds: float, body: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        headers = {"Authorization": f"Bearer {token}"}
        return self._http.request(method, self._url + path, seconds, json_body=body, headers=headers)
