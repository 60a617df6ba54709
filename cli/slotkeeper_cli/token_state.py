"""The state of the shared API token. The token itself is never read."""

from __future__ import annotations

import time
from typing import Any

from slotkeeper.chatbot.token import ITEM_NAME, timing
from slotkeeper.token import MalformedToken, Timing, TokenStatus, TokenTable
from slotkeeper_cli.errors import CommandFailed
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.stack_connection import StackConnection


def token_status(tokens: TokenTable) -> TokenStatus:
    """The state of the token. Raises CommandFailed if its item is malformed."""
    try:
        return tokens.status(ITEM_NAME)
    except MalformedToken as error:
        raise CommandFailed(
            f"{error}: the item was edited manually. Delete it; the next message to the chatbot creates it again"
        ) from None


def token_table(stack: StackConnection) -> TokenTable:
    """The table of the token, without which a stack has no chatbot."""
    return TokenTable(stack.client("dynamodb"), stack.outputs["TokenTableName"])


def token_timing(stack: StackConnection) -> Timing:
    """The times that a refresh must keep."""
    return timing(float(stack.parameters.get("TokenMinRefreshSeconds") or 5))


def has_refresher(stack: StackConnection) -> bool:
    """Whether a function refreshes the token on a schedule."""
    return bool(stack.parameters.get("TokenRefreshSchedule"))


def read_token(stack: StackConnection) -> dict[str, Any]:
    """The state of the token as JSON shows it."""
    shown, now, limits = token_status(token_table(stack)), time.time(), token_timing(stack)
    lock, refused = None, None
    if shown.lock_expires is not None:
        # All locks of this stack have the same lease.
        since = shown.lock_expires - limits.lease
        lock = {"since": iso(since), "expires": iso(shown.lock_expires), "expired": now >= shown.lock_expires}
    if shown.refused_until is not None:
        binds = 0 < shown.refused_until - now <= limits.longest_refusal
        refused = {"until": iso(shown.refused_until), "reason": shown.refused_reason, "over": not binds}
    return {
        "token_name": ITEM_NAME,
        "generation": shown.generation,
        "stored": shown.has_token,
        "stored_at": iso(shown.stored_at) if shown.generation else None,
        "age_seconds": int(now - shown.stored_at) if shown.generation else None,
        "lock": lock,
        "refused": refused,
        "refreshed_by": "schedule" if has_refresher(stack) else "the container that needs it",
    }
