"""Three ways in which an instance comes to a token when the one it has was answered 401."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol
from uuid import uuid4

from slotkeeper.chat_api import ChatApi
from slotkeeper.token_item import TokenTable
from slotkeeper.token_lock import SharedToken, Timing

NAME = "benchmark"
# Long enough for five hundred threads on two cores; no lease ends here.
TIMING = Timing(api=30.0, store=10.0, patience=60.0, min_interval=0.0)


class Store:
    """The token item, by its protocol and past it."""

    def __init__(self, dynamodb: Any, table_name: str) -> None:
        self.table = TokenTable(dynamodb, table_name)
        self._dynamodb = dynamodb
        self._table_name = table_name

    def put(self, token: str) -> None:
        """Stores a token without any condition."""
        self._dynamodb.update_item(
            TableName=self._table_name,
            Key={"token_name": {"S": NAME}},
            UpdateExpression="SET access_token = :token, generation = if_not_exists(generation, :zero) + :one",
            ExpressionAttributeValues={":token": {"S": token}, ":zero": {"N": "0"}, ":one": {"N": "1"}},
        )


class Way(Protocol):
    """One instance."""

    def token_after(self, bad: str) -> str:
        """A token that is not `bad`; asks the API for one if it must."""


class Lock:
    """The token lock of the layer."""

    def __init__(self, store: Store, api: ChatApi) -> None:
        self._token = SharedToken(store.table, NAME, api.authenticate, timing=TIMING)

    def token_after(self, bad: str) -> str:
        self._token.invalidate(bad)
        return self._token.get()


class TextbookLoop:
    """The same lock in the table; but whoever does not get it looks again after 1 s, then 2, 4, 8, 10 and so on."""

    def __init__(self, store: Store, api: ChatApi) -> None:
        self._table = store.table
        self._api = api

    def token_after(self, bad: str) -> str:
        pause = 1.0
        while True:
            item = self._table.read(NAME)
            if item.access_token not in (None, bad):
                return str(item.access_token)
            code = uuid4().hex
            if item.lock is None and self._table.take(NAME, item, code, time.time() + TIMING.lease):
                token = self._api.authenticate(TIMING.api)
                self._table.store(NAME, code, token, time.time())
                return token
            time.sleep(pause)
            pause = min(10.0, 2 * pause)


class NoCoordination:
    """Each asks the API itself and leaves the token in the table, where others may find it."""

    def __init__(self, store: Store, api: ChatApi) -> None:
        self._store = store
        self._api = api

    def token_after(self, bad: str) -> str:
        item = self._store.table.read(NAME)
        if item.access_token not in (None, bad):
            return str(item.access_token)
        token = self._api.authenticate(TIMING.api)
        self._store.put(token)
        return token


WAYS: dict[str, Callable[[Store, ChatApi], Way]] = {
    "token lock": Lock,
    "textbook loop": TextbookLoop,
    "no coordination": NoCoordination,
}


class Calls:
    """What the instances' calls would use of DynamoDB.

    A read of up to 4 KB that is consistent uses one read unit, a write of up to 1 KB one write unit, and so does a
    write that its condition refuses (DynamoDB guide, "DynamoDB read and write operations").
    """

    def __init__(self, dynamodb: Any) -> None:
        self.reads = 0
        self.writes = 0
        self.refused = 0  # of the writes
        self.latencies: list[float] = []  # seconds
        self._lock = threading.Lock()
        self._mine = threading.local()
        dynamodb.meta.events.register("before-call", self._begin)
        dynamodb.meta.events.register("after-call", self._end)

    def _begin(self, **_: Any) -> None:
        self._mine.began = time.monotonic()

    def _end(self, model: Any, http_response: Any, **_: Any) -> None:
        with self._lock:
            self.latencies.append(time.monotonic() - self._mine.began)
            if model.name == "UpdateItem":
                self.writes += 1
                self.refused += http_response.status_code >= 400
            else:
                self.reads += 1
