"""The account's tokens: one is live, and a new one invalidates it."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, replace
from typing import Literal

EndedBy = Literal["auth", "invalidate"]


@dataclass(frozen=True)
class TokenLife:
    """One token, numbered from 1 in the order of creation. Times are epoch seconds."""

    number: int
    since: float
    until: float | None = None  # None: live
    ended_by: EndedBy | None = None  # a newer token, or an invalidation


class Tokens:
    """Every token that was created. Only the newest can be live."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lives: list[TokenLife] = []
        self._numbers: dict[str, int] = {}

    def make(self) -> tuple[str, int]:
        """Create a live token; return it and its number. Invalidates the token before it at the same instant."""
        token = secrets.token_urlsafe(24)
        with self._lock:
            now = time.time()
            self._end("auth", now)
            self._lives.append(TokenLife(len(self._lives) + 1, now))
            self._numbers[token] = len(self._lives)
            return token, len(self._lives)

    def kill(self) -> float | None:
        """Invalidate the live token. Returns the time, or None if there was none."""
        with self._lock:
            return self._end("invalidate", time.time())

    def find(self, token: str) -> tuple[int | None, bool]:
        """The token's number (None for an unknown token), and whether it is live."""
        with self._lock:
            number = self._numbers.get(token)
            return number, number == len(self._lives) and self._lives[-1].until is None

    def history(self) -> list[TokenLife]:
        with self._lock:
            return list(self._lives)

    def _end(self, by: EndedBy, now: float) -> float | None:
        if not self._lives or self._lives[-1].until is not None:
            return None
        self._lives[-1] = replace(self._lives[-1], until=now, ended_by=by)
        return now
