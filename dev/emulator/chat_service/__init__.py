"""The simulated chat API: an HTTP server on 127.0.0.1 with one live token per account.

Every `POST /auth` creates a token and invalidates the one before it, as APIs with sessions do. The server

- requires client id and secret as JSON, and answers wrong ones with 401;
- checks a token when a request arrives: a request with a live token is answered even if the token is invalidated
  meanwhile;
- answers 401 alike to an invalid token, to a missing token and to a request that the caller may not make;
- fails on demand: 429 or 503 with Retry-After, no answer, or a closed connection, before or after the effect.

| route | request | answers |
|---|---|---|
| `POST /auth` | `{"client_id", "client_secret"}` | 200 `{"access_token", "token_type"}`, 400, 401 |
| `GET /me` | Bearer token | 200 `{"client_id"}`, 401 |
| `POST /answers` | Bearer token, `{"text", "conversation"?}` | 200 `{"answer"}`, 400, 401 |
| `POST /_control/invalidate` | | 200: invalidates the live token, for manual tests |

An error is `{"error": <sentence>}`; an invalid body is 400. There is no TLS, no expiry of a token by age, no quota.
"""

from .exchanges import Outage, Request, TokenLife, answer_to
from .server import ChatService
from .simulated_chat_api import ANSWERS, AUTH, ME

__all__ = ["ANSWERS", "AUTH", "ME", "ChatService", "Outage", "Request", "TokenLife", "answer_to"]
