"""Handles a request to the chatbot: verifies the signature, parses the message, and answers or refuses it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.chatbot.api import ChatApi, ChatApiFailed
from slotkeeper.chatbot.credentials import UnusableSecret
from slotkeeper.chatbot.messages import ChatMessage, MessageTooLarge, check_size, parse_message
from slotkeeper.chatbot.signatures import (
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    SeenSignatures,
    SignatureRefused,
    check_headers,
    verify,
)
from slotkeeper.schema import InvalidBody
from slotkeeper.token import SharedToken, StillUnauthorized, TokenRefused, TokenTimeout

ANSWER_SECONDS = 4.5  # for one `POST /answers`

SIGN_AGAIN = "The message was not answered. To try again, sign it again."
_SOON = 5  # Retry-After in seconds, if the duration of the problem is not known


@dataclass(frozen=True)
class SignedRequest:
    """A request as received. `headers` ignores the case of names; `request_id` is that of this invocation."""

    headers: Mapping[str, str]
    body: bytes
    request_id: str


@dataclass(frozen=True)
class Answered:
    """The API's answer to a message."""

    message_id: str
    answer: str


@dataclass(frozen=True)
class Refused:
    """The message was not answered. `status`: HTTP status. `code`: for programs. `reason`: for people.

    `retry_after` is in seconds.
    """

    status: int
    code: str
    reason: str
    message_id: str | None = None
    retry_after: int | None = None
    cause: Exception | None = None  # for the log only


Reply = Answered | Refused


@dataclass
class Chatbot:
    """Answers signed messages through the third-party API, with the token that all instances share.

    Args:
        signing_keys: returns the accepted keys; may raise UnusableSecret.
        clock: seconds since the epoch.
    """

    signing_keys: Callable[[], list[str]]
    seen: SeenSignatures
    token: SharedToken
    api: ChatApi
    clock: Callable[[], float] = time.time

    def reply(self, request: SignedRequest, left: Callable[[], float]) -> Reply:
        """Handle a request. `left` returns the seconds that remain for the answer.

        A message is forwarded only after its signature has been verified and recorded as used.
        """
        refused = self._check(request)
        if refused is not None:
            return refused
        try:
            message = parse_message(request.body)
        except InvalidBody as error:
            return Refused(400, "MalformedMessage", str(error))
        return self._answer(message, left)

    def _check(self, request: SignedRequest) -> Refused | None:
        try:
            signed_at, signature = check_headers(
                request.headers.get(TIMESTAMP_HEADER), request.headers.get(SIGNATURE_HEADER), self.clock()
            )
            check_size(request.body)  # do not hash large bodies of unknown senders
            verify(self.signing_keys(), signed_at, signature, request.body)
            if not self.seen.note(signature, signed_at, request.request_id):
                raise SignatureRefused(
                    "ReplayedSignature", "this signature was already used: sign each request with a new timestamp"
                )
        except MessageTooLarge as error:
            return Refused(413, "MessageTooLarge", str(error))
        except SignatureRefused as error:
            return Refused(401, error.code, str(error))
        except (UnusableSecret, BotoCoreError, ClientError) as error:
            reason = f"the signature cannot be verified at the moment. {SIGN_AGAIN}"
            return Refused(503, "SignatureUnchecked", reason, retry_after=_SOON, cause=error)
        return None

    def _answer(self, message: ChatMessage, left: Callable[[], float]) -> Reply:
        def ask(token: str) -> str:
            return self.api.answer(message, token, min(ANSWER_SECONDS, left()))

        def refused(status: int, code: str, reason: str, retry_after: int | None = None) -> Refused:
            return Refused(status, code, f"{reason}. {SIGN_AGAIN}", message.message_id, retry_after)

        try:
            # The wait for a token must leave enough time for the answer.
            return Answered(message.message_id, self.token.call(ask, within=left() - ANSWER_SECONDS))
        except ChatApiFailed as error:
            reason = f"{error}. The API may have handled the message. To try again, sign it again."
            wait = None if error.retry_after is None else math.ceil(error.retry_after)
            return Refused(502, "ChatApiFailed", reason, message.message_id, wait)
        except StillUnauthorized as error:
            return Refused(502, "ChatApiUnauthorized", str(error), message.message_id)
        except TokenRefused as error:
            until = datetime.fromtimestamp(error.until, UTC).isoformat(timespec="seconds")
            wait = max(1, math.ceil(error.until - self.clock()))
            return refused(502, "TokenRefused", f"{error}; the API is not asked again before {until}", wait)
        except TokenTimeout as error:
            return refused(503, "TokenTimeout", str(error), _SOON)
        except (BotoCoreError, ClientError) as error:
            reason = f"the token cannot be read at the moment. {SIGN_AGAIN}"
            return Refused(503, "TokenUnavailable", reason, message.message_id, _SOON, cause=error)
