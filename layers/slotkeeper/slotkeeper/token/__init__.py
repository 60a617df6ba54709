"""The token lock: all instances share one API token, and one of them refreshes it.

Use `SharedToken`. lock.py states its guarantees.
"""

from slotkeeper.token.http_client import HttpAnswer, HttpClient, HttpFailed, NoConnection, NotSent
from slotkeeper.token.item import MalformedToken, TokenStatus, TokenTable
from slotkeeper.token.lock import SharedToken
from slotkeeper.token.outcomes import (
    AuthenticationFailed,
    AuthenticationNotAttempted,
    AuthenticationRefused,
    RefreshAbandoned,
    Refreshed,
    StillUnauthorized,
    StoredTooLate,
    TokenError,
    TokenEvent,
    TokenRefused,
    TokenTimeout,
    TookOver,
    Unauthorized,
    Waited,
)
from slotkeeper.token.refresh import DelegateRefresh
from slotkeeper.token.timing import Timing

__all__ = [
    "AuthenticationFailed",
    "AuthenticationNotAttempted",
    "AuthenticationRefused",
    "DelegateRefresh",
    "HttpAnswer",
    "HttpClient",
    "HttpFailed",
    "MalformedToken",
    "NoConnection",
    "NotSent",
    "RefreshAbandoned",
    "Refreshed",
    "SharedToken",
    "StillUnauthorized",
    "StoredTooLate",
    "Timing",
    "TokenError",
    "TokenEvent",
    "TokenRefused",
    "TokenStatus",
    "TokenTable",
    "TokenTimeout",
    "TookOver",
    "Unauthorized",
    "Waited",
]
