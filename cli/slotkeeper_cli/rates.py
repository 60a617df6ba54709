"""Rates as operators write them."""

from __future__ import annotations

import re

from slotkeeper.slots.rate import UNITS, Rate, check_rate

_RATE = re.compile(rf"(\d+)/({'|'.join(UNITS)})")


def parse_rate(text: str, burst: int = 1) -> Rate:
    """Parse a rate as operators write it, such as "10/minute". Raises ValueError, as check_rate."""
    if not isinstance(text, str) or not (match := _RATE.fullmatch(text)):
        raise ValueError(f"must be COUNT/UNIT with the unit {' or '.join(UNITS)}, such as 10/minute, got {text!r}")
    return check_rate(Rate(int(match[1]), UNITS[match[2]], burst))
