"""What the stand-in writes down: its requests and its tokens' lives. A token is named by number, never by its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EndedBy = Literal["auth", "invalidate"]


@dataclass(frozen=True)
class Request:
    """One request, in the order of arrival. `..._monotonic` are time.monotonic(), the other instants epoch seconds."""

    number: int  # from 1
    method: str
    path: str
    began: float
    began_monotonic: float
    token: int | None = None  # the token it bore, or that it made (POST /auth); None: none, or never one of ours
    unknown_token: bool = False  # it bore one that was never made here
    text: str | None = None  # what POST /answers asked
    # None: not decided, or ended without an answer. A 401 stands here as soon as the token is judged.
    status: int | None = None
    ended: float | None = None  # None: in flight. Written before the answer leaves
    ended_monotonic: float | None = None


@dataclass(frozen=True)
class TokenLife:
    """One token, numbered from 1 in the order in which they were made. Epoch seconds."""

    number: int
    since: float
    until: float | None = None  # None: it is the live one
    ended_by: EndedBy | None = None  # a newer token, or somebody who invalidated it
