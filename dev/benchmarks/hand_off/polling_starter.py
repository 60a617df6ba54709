"""The starter of a design without a wake: the deployed one, but it only hides a refused message for a fixed time.

It registers no message, checks only once and wakes none. It is deployed next to the starter's app.py, in a function of
its own.
"""

import os
from typing import Any

from slotkeeper.slots import admission
from slotkeeper.slots.protocol import Registration, Slots

PERIOD = int(os.environ["POLL_SECONDS"])


def replace(owner: Any, name: str, new: Any) -> None:
    """Raises AttributeError if the deployed starter no longer has this step, so that its change is noticed here."""
    getattr(owner, name)
    setattr(owner, name, new)


replace(Slots, "wait", lambda *_, **__: Registration.REGISTERED)
replace(Slots, "can_proceed", lambda *_: False)
replace(admission, "hide_seconds", lambda *_: PERIOD)
replace(admission, "wake_next", lambda *_: False)

from app import handler  # noqa: E402 (its import makes the starter)

__all__ = ["handler"]
