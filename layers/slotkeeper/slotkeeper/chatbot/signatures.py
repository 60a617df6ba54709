"""Signed requests: who knows a signing key may speak to the chatbot, once with each signature.

A sender puts two headers on its request: the time in seconds since the epoch, and `v1=` with the hex digits of

    HMAC-SHA256(signing key, "v1:" + timestamp + ":" + raw body)

The timestamp bounds for how long a request that somebody has recorded could be sent again, and within that time
SeenSignatures refuses it. Several keys are accepted at once, so that keys change without an outage: add the new one,
let the senders change over, take the old one away.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError

from slotkeeper.aws.dynamodb import Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TIMESTAMP_HEADER = "X-Slotkeeper-Timestamp"
SIGNATURE_HEADER = "X-Slotkeeper-Signature"

WINDOW = 300  # seconds that a timestamp may be from the time here, either way

# For how many seconds after its timestamp a signature is kept: for as long as it could pass, and as long again, since
# TTL goes by DynamoDB's clock.
_KEEP = 2 * WINDOW


class SignatureRefused(Exception):
    """The request is not answered; the text says what was expected. `code` is for programs."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def sign(key: str, timestamp: int, body: bytes | str) -> str:
    """The value of the signature header for a body, sent at `timestamp` (seconds since the epoch)."""
    raw = body.encode() if isinstance(body, str) else body
    return "v1=" + hmac.new(key.encode(), f"v1:{timestamp}:".encode() + raw, sha256).hexdigest()


def check_headers(timestamp: str | None, signature: str | None, now: float) -> tuple[int, str]:
    """What can be refused without knowing a key: a stranger's junk does not make us ask for one.

    Args:
        timestamp, signature: the headers' values, None where the header is missing.
        now: seconds since the epoch.

    Returns:
        Both, parsed.

    Raises:
        SignatureRefused: a header is missing or malformed, or the timestamp is outside the window.
    """
    for name, value in ((TIMESTAMP_HEADER, timestamp), (SIGNATURE_HEADER, signature)):
        if not value:
            raise SignatureRefused("MissingHeader", f"header {name} is missing")
    # No leading zero: the text is what was signed, and one instant has one text.
    if not re.fullmatch(r"[1-9][0-9]{0,11}", timestamp or "", re.ASCII):
        raise SignatureRefused(
            "MalformedTimestamp", f"header {TIMESTAMP_HEADER} must be whole seconds since the epoch, as decimal digits"
        )
    if not re.fullmatch(r"v1=[0-9a-f]{64}", signature or "", re.ASCII):
        raise SignatureRefused(
            "MalformedSignature", f"header {SIGNATURE_HEADER} must be v1= and 64 hex digits in lower case"
        )
    signed_at = int(timestamp or 0)
    if abs(now - signed_at) > WINDOW:
        late = "past" if signed_at < now else "future"
        raise SignatureRefused(
            "StaleTimestamp",
            f"header {TIMESTAMP_HEADER} is {abs(now - signed_at):.0f} s in the {late}; it must be within {WINDOW} s of "
            "the time here: sign again, by a clock that is right",
        )
    return signed_at, signature or ""


def verify(keys: Iterable[str], signed_at: int, signature: str, body: bytes) -> None:
    """Raises SignatureRefused unless one of the keys has signed the body. It takes equally long for every digit."""
    matches = [hmac.compare_digest(sign(key, signed_at, body).encode(), signature.encode()) for key in keys]
    if not any(matches):
        raise SignatureRefused(
            "WrongSignature",
            f"header {SIGNATURE_HEADER} is not the signature of this timestamp and body by a key that is accepted: "
            'v1= and the hex digits of HMAC-SHA256 over "v1:<timestamp>:<body>", the body byte for byte as it is sent',
        )


class SeenSignatures:
    """The table of signatures that were accepted, each for as long as its timestamp could pass.

    signature   S, key
    request_id  S: the invocation that answered it
    expires_at  N: seconds since the epoch, by which TTL deletes it

    Written after the verification only, so that strangers cannot fill the table. That TTL deletes late does no harm: a
    signature is bound to its timestamp, and whoever comes with it after the window has been refused already.
    """

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._table = Table(dynamodb, table_name, "signature")

    def note(self, signature: str, signed_at: int, request_id: str) -> bool:
        """Notes a signature as used; False if another request has used it.

        Raises:
            ClientError, BotoCoreError: DynamoDB cannot say, so the request must not be answered.
        """
        try:
            return self._put(signature, signed_at, request_id)
        except BotoCoreError:
            # The answer may have been lost behind a write that took effect; the second write then meets our own id.
            return self._put(signature, signed_at, request_id)

    def _put(self, signature: str, signed_at: int, request_id: str) -> bool:
        item = {
            "signature": {"S": signature},
            "request_id": {"S": request_id},
            "expires_at": {"N": str(signed_at + _KEEP)},
        }
        held, user = self._table.put(item, "attribute_not_exists(signature)")
        if not held:
            # botocore repeats a write whose answer was lost by itself, too. Some engines do not return the item.
            user = user or self._table.read(signature)
        return held or user.get("request_id") == {"S": request_id}
