"""Leases: holders that are code, judged by their end alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slotkeeper_cli.formatting import duration, iso


def lease_as_dict(until: int, now: float) -> dict[str, Any]:
    """The end of a lease as JSON shows it. `seconds_left` is negative after the end."""
    return {"until": iso(until), "seconds_left": int(until - now)}


def lease_text(lease: Mapping[str, Any]) -> str:
    """The end of a lease of `lease_as_dict` as text: `ends in 45 s`, `expired 5 s ago`."""
    left = lease["seconds_left"]
    return f"expired {duration(-left)} ago" if left < 0 else f"ends in {duration(left)}"
