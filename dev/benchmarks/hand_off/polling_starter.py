"""The starter of a design without a wake: the deployed one, but a refused message is only hidden for a fixed time.

Nobody is registered, nobody looks a second time. It goes beside the starter's app.py into a function of its own.
"""

import os
from typing import Any

from slotkeeper.slots import admission
from slotkeeper.slots.protocol import Slots

PERIOD = int(os.environ["POLL_SECONDS"])


def replace(owner: Any, name: str, new: Any) -> None:
    """Raises AttributeError if the deployed starter has no such step any more: then this is not what it says."""
    getattr(owner, name)
    setattr(owner, name, new)


replace(Slots, "wait", lambda *_: "registered")
replace(Slots, "can_proceed", lambda *_: False)
replace(admission, "hide_seconds", lambda *_: PERIOD)

from app import handler  # noqa: E402 (its starter is made while it is imported)

__all__ = ["handler"]
