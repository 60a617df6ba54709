"""The quirk: one live token, which the next one kills."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, replace
from typing import Literal

EndedBy = Literal["auth", "invalidate"]


@dataclass(frozen=True)
class TokenLife:
    """One token, numbered from 1 in the order in which they were made. Epoch seconds."""

    number: int
    since: float
    until: float | None = None  # None: it is the live one
    ended_by: EndedBy | None = None  # a newer token, or an invalidation


class Tokens:
    """Every token that was made. Only the newest may be live."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lives: list[TokenLife] = []
        self._numbers: dict[str, int] = {}

    def make(self) -> tuple[str, int]:
        """A new live token and its number; the one before it dies at the same instant."""
        token = secrets.token_urlsafe(24)
        with self._lock:
            now = time.time()
            self._end("auth", now)
            self._lives.append(TokenLife(len(self._lives) + 1, now))
            self._numbers[token] = len(self._lives)
            return token, len(self._lives)

    def kill(self) -> float | None:
        """End the live one; when that was, None if there was none."""
        with self._lock:
            return self._end("invalidate", time.time())

    def find(self, token: str) -> tuple[int | None, bool]:
        """Its number, None if it was never made here, and whether it is the live one."""
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
