"""Three designs by which an instance gets a token after a 401."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Protocol
from uuid import uuid4

from slotkeeper.token import SharedToken, Timing, TokenTable

NAME = "benchmark"
TABLE = "tokens"
TRIES = 3  # in addition to the first
# Long enough for five hundred threads on two cores. No lease expires.
TIMING = Timing(api=30.0, store=10.0, patience=60.0, min_interval=0.0)


class Api(Protocol):
    """The API of the tokens; see ChatApi."""

    def authenticate(self, seconds: float) -> str: ...

    def is_valid(self, token: str, seconds: float) -> bool: ...


class Store(TokenTable):
    """The token item, with a write outside the protocol."""

    def __init__(self, dynamodb: Any, table_name: str = TABLE) -> None:
        super().__init__(dynamodb, table_name)
        self._client = dynamodb

    def put(self, token: str, seconds: float = 0.0) -> None:
        """Store a token without a condition. `seconds`: see `refresh_seconds` in token/item.py."""
        self._client.update_item(
            TableName=TABLE,
            Key={"token_name": {"S": NAME}},
            UpdateExpression="SET access_token = :token, refresh_seconds = :seconds, "
            "generation = if_not_exists(generation, :zero) + :one",
            ExpressionAttributeValues={
                ":token": {"S": token},
                ":seconds": {"N": f"{seconds:.3f}"},
                ":zero": {"N": "0"},
                ":one": {"N": "1"},
            },
        )


class TokenDesign(Protocol):
    """One instance."""

    def token_after(self, bad: str) -> str:
        """A token other than `bad`, from the API if necessary."""


class Lock:
    """The token lock of the layer, with the chatbot's probe."""

    def __init__(self, store: Store, api: Api) -> None:
        self._token = SharedToken(store, NAME, api.authenticate, still_valid=api.is_valid, timing=TIMING)

    def token_after(self, bad: str) -> str:
        self._token.invalidate(bad)
        return self._token.get()


class TextbookLoop:
    """The same lock in the table. An instance without the lock polls after 1, 2, 4, 8, 10, 10 s and so on."""

    def __init__(self, store: Store, api: Api) -> None:
        self._store = store
        self._api = api

    def token_after(self, bad: str) -> str:
        pause = 1.0
        while True:
            item = self._store.read(NAME)
            if item.access_token not in (None, bad):
                return str(item.access_token)
            code = uuid4().hex
            if item.lock is None and self._store.acquire(NAME, item, code, time.time() + TIMING.lease):
                token = self._api.authenticate(TIMING.api)
                self._store.store(NAME, code, token, time.time())
                return token
            time.sleep(pause)
            pause = min(10.0, 2 * pause)


class NoCoordination:
    """Each instance requests a token and stores it in the table, where others can find it."""

    def __init__(self, store: Store, api: Api) -> None:
        self._store = store
        self._api = api

    def token_after(self, bad: str) -> str:
        item = self._store.read(NAME)
        if item.access_token not in (None, bad):
            return str(item.access_token)
        token = self._api.authenticate(TIMING.api)
        self._store.put(token)
        return token


def last_share(seed: int) -> float:
    """The duration of the previous refresh relative to this one, since the duration of an API call varies."""
    return random.Random(seed).uniform(0.75, 1.25)


LOCK, TEXTBOOK, NOTHING = "token lock", "textbook loop", "no coordination"
DESIGNS: dict[str, Callable[[Store, Api], TokenDesign]] = {LOCK: Lock, TEXTBOOK: TextbookLoop, NOTHING: NoCoordination}


def serve(instance: TokenDesign, api: Api, bad: str) -> tuple[float, bool]:
    """Act as a chatbot after a 401: the seconds until the API accepts a token or the tries end, and whether it did."""
    started = time.monotonic()
    token = bad
    for _ in range(1 + TRIES):
        token = instance.token_after(token)
        seconds = time.monotonic() - started
        if api.is_valid(token, TIMING.api):
            return seconds, True
    return seconds, False
