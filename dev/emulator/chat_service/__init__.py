"""The third-party chat API's stand-in: an HTTP server on 127.0.0.1 with the one quirk that makes sharing a token hard.

It stands for an API whose account has **one live token at a time**: every `POST /auth` makes a new token and kills the
one before it, whoever uses that. Such APIs exist wherever a session, not a grant, is handed out. Like them it

- asks for client id and secret as JSON, and answers wrong ones with 401;
- judges a token at the door: a request that came in with a live token is answered, though the token dies meanwhile;
- says 401 to a dead token, to none and to a request that this caller may not make, and all three look the same;
- takes its time over `POST /auth`, and makes the new token (and kills the old) at one instant of that time;
- fails now and then: 429 or 503 with Retry-After, no answer, a connection that ends, before the effect or after it.

| route | request | answers |
|---|---|---|
| `POST /auth` | `{"client_id", "client_secret"}` | 200 `{"access_token", "token_type"}`, 400, 401 |
| `GET /me` | Bearer token | 200 `{"client_id"}`, 401 |
| `POST /answers` | Bearer token, `{"text", "conversation"?}` | 200 `{"answer"}`, 400, 401 |

An error is `{"error": ...}` in a sentence. A body that is not what the route takes is 400. What a real API has and this
one has not: TLS, expiry of a token by age, quotas. Alone: `python -m dev.emulator.chat_service --help`.
"""

from .chat_api_stand_in import ANSWERS, AUTH, ME
from .exchanges import Request, answer_to
from .outages import Kind, Outage
from .server import ChatService
from .tokens import TokenLife

__all__ = ["ANSWERS", "AUTH", "ME", "ChatService", "Kind", "Outage", "Request", "TokenLife", "answer_to"]
