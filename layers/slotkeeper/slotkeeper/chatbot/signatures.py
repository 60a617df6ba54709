"""Request signatures: the chatbot answers only senders that know a signing key, and each signature once.

A sender sets two headers: the time in seconds since the epoch, and `v1=` with the hex digits of

    HMAC-SHA256(signing key, "v1:" + timestamp + ":" + raw body)

The timestamp limits for how long a recorded request could be replayed, and within that time SeenSignatures refuses a
replay. Several keys are accepted at the same time, so that keys can be rotated without an outage: add the new key,
change the senders, remove the old key.
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

WINDOW = 300  # maximum difference, in seconds, between a timestamp and this function's clock

# Seconds after its timestamp for which a signature is stored: the time in which it is valid, and the same time again,
# because TTL uses DynamoDB's clock.
_KEEP = 2 * WINDOW


class SignatureRefused(Exception):
    """The request is refused. The message states what was expected. `code` is for programs."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def sign(key: str, timestamp: int, body: bytes | str) -> str:
    """Return the signature header's value for a body that is sent at `timestamp`, seconds since the epoch."""
    raw = body.encode() if isinstance(body, str) else body
    return "v1=" + hmac.new(key.encode(), f"v1:{timestamp}:".encode() + raw, sha256).hexdigest()


def check_headers(timestamp: str | None, signature: str | None, now: float) -> tuple[int, str]:
    """Check what does not need a key, so that malformed requests cause no read of the secret.

    Args:
        timestamp, signature: the headers' values, None if the header is missing.
        now: seconds since the epoch.

    Returns:
        The parsed timestamp and the signature.

    Raises:
        SignatureRefused: a header is missing or malformed, or the timestamp is outside the window.
    """
    for name, value in ((TIMESTAMP_HEADER, timestamp), (SIGNATURE_HEADER, signature)):
        if not value:
            raise SignatureRefused("MissingHeader", f"header {name} is missing")
    # No leading zero: the text is signed, so each time must have only one text.
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
            "the server's time. Correct the clock and sign again",
        )
    return signed_at, signature or ""


def verify(keys: Iterable[str], signed_at: int, signature: str, body: bytes) -> None:
    """Raise SignatureRefused unless one of the keys has signed the body. The comparison takes constant time."""
    matches = [hmac.compare_digest(sign(key, signed_at, body).encode(), signature.encode()) for key in keys]
    if not any(matches):
        raise SignatureRefused(
            "WrongSignature",
            f"header {SIGNATURE_HEADER} is not the signature of this timestamp and body by an accepted key. Expected: "
            'v1= and the hex digits of HMAC-SHA256 over "v1:<timestamp>:<body>", with the exact bytes of the body',
        )


class SeenSignatures:
    """The table of accepted signatures, each stored for as long as its timestamp is valid.

    signature   S, key
    request_id  S: the invocation that accepted it
    expires_at  N: TTL, seconds since the epoch

    It is written only after the verification, so that unknown senders cannot fill the table. A late TTL deletion has no
    effect: after the window the timestamp check refuses the signature.
    """

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._table = Table(dynamodb, table_name, "signature")

    def note(self, signature: str, signed_at: int, request_id: str) -> bool:
        """Record a signature as used; False if another request has used it.

        Raises:
            ClientError, BotoCoreError: DynamoDB did not answer, so the request must not be answered.
        """
        try:
            return self._put(signature, signed_at, request_id)
        except BotoCoreError:
            # The first write may have taken effect although its answer was lost. The second one then finds its own id.
            return self._put(signature, signed_at, request_id)

    def _put(self, signature: str, signed_at: int, request_id: str) -> bool:
        item = {
            "signature": {"S": signature},
            "request_id": {"S": request_id},
            "expires_at": {"N": str(signed_at + _KEEP)},
        }
        held, user, _ = self._table.put(item, "attribute_not_exists(signature)")
        if not held:
            # botocore too retries a write whose answer was lost. Some local engines do not return the item.
            user = user or self._table.read(signature)
        return held or user.get("request_id") == {"S": request_id}
