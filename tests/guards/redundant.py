"""Terms that change nothing if they are left out, each with the reason."""

from __future__ import annotations

REDUNDANT: dict[str, str] = {}
