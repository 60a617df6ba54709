"""Three ways in which an instance comes to a token when the one it has was answered 401."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Protocol
from uuid import uuid4

from slotkeeper.token import SharedToken, Timing, TokenTable

NAME = "benchmark"
TABLE = "tokens"
TRIES = 3  # again, after the first 401
# Long enough for five hundred threads on two cores; no lease ends here.
TIMING = Timing(api=30.0, store=10.0, patience=60.0, min_interval=0.0)


class Api(Protocol):
    """The API that gives tokens; see ChatApi."""

    def authenticate(self, seconds: float) -> str: ...

    def is_valid(self, token: str, seconds: float) -> bool: ...


class Store(TokenTable):
    """The token item, by its protocol and past it."""

    def __init__(self, dynamodb: Any, table_name: str = TABLE) -> None:
        super().__init__(dynamodb, table_name)
        self._client = dynamodb

    def put(self, token: str, seconds: float = 0.0) -> None:
        """Stores a token without any condition. `seconds`: see `refresh_seconds` in token/item.py."""
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


class Way(Protocol):
    """One instance."""

    def token_after(self, bad: str) -> str:
        """A token that is not `bad`; asks the API for one if it must."""


class Lock:
    """The token lock of the layer, with the probe that the chatbot has."""

    def __init__(self, store: Store, api: Api) -> None:
        self._token = SharedToken(store, NAME, api.authenticate, still_valid=api.is_valid, timing=TIMING)

    def token_after(self, bad: str) -> str:
        self._token.invalidate(bad)
        return self._token.get()


class TextbookLoop:
    """The same lock in the table; but whoever does not get it looks again after 1 s, then 2, 4, 8, 10 and so on."""

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
    """Each asks the API itself and leaves the token in the table, where others may find it."""

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
    """How long the refresh before took, as a multiple of what this one takes: no API takes equally long each time."""
    return random.Random(seed).uniform(0.75, 1.25)


LOCK, TEXTBOOK, NOTHING = "token lock", "textbook loop", "no coordination"
WAYS: dict[str, Callable[[Store, Api], Way]] = {LOCK: Lock, TEXTBOOK: TextbookLoop, NOTHING: NoCoordination}


def serve(instance: Way, api: Api, bad: str) -> tuple[float, bool]:
    """What a chatbot does after a 401: seconds to a token that the API accepts, or to giving up, and which it was."""
    started = time.monotonic()
    token = bad
    for _ in range(1 + TRIES):
        token = instance.token_after(token)
        seconds = time.monotonic() - started
        if api.is_valid(token, TIMING.api):
            return seconds, True
    return seconds, False
