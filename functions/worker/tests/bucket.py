"""The data bucket in moto, its content as readers see it, and the work's calls as numbered boundaries."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from slotkeeper.retry.message import Message
from tests.simulation.account.boundary import Killed

INPUT_KEY = "work/input/orders.jsonl"
ORDERS = b'{"city": "Oslo", "n": 1}\n{"city": "Rom/a", "n": 2}\n{"n": 3, "city": "Oslo"}\n'
BY_CITY = {
    "Oslo": b'{"city": "Oslo", "n": 1}\n{"n": 3, "city": "Oslo"}\n',
    "Rom/a": b'{"city": "Rom/a", "n": 2}\n',
}
MANIFEST_PUT = "PutObject work/published/"

type AtBoundary = Callable[[int, str], None]
type View = dict[str, bytes | None] | None  # value -> content of its part; None if nothing is published


def nothing(number: int, name: str) -> None:
    """Do nothing at the boundary."""


def request(request_id: str = "r", attempt: int = 1, **payload: Any) -> Message:
    fields = {"input_key": INPUT_KEY, "split_by": "city", **payload}
    return Message(request_id, fields, tuple(float(n) for n in range(1, attempt)))


class Boundaries:
    """Hooks before and after each S3 call of the work, numbered from 0 for each thread.

    A test's `on(number, name)` runs there, with a name like "before PutObject work/published/r.json". The work receives
    what it raises. Raised after a call, it replaces the answer of a call that took effect.
    """

    def __init__(self, client: Any) -> None:
        self._here = threading.local()
        self.begin(nothing)
        client.meta.events.register("provide-client-params.s3", self._note)
        client.meta.events.register("before-call.s3", self._before)
        client.meta.events.register("after-call.s3", self._after)

    @property
    def passed(self) -> list[str]:
        """Names of the boundaries that this thread has passed since `begin`."""
        return list(self._here.passed)

    def begin(self, on: AtBoundary) -> None:
        self._here.passed = []
        self._here.on = on

    def _note(self, params: Any, model: Any, **_: Any) -> None:
        self._here.call = f"{model.name} {params.get('Key', '')}".strip()

    def _before(self, **_: Any) -> None:
        self._reach(f"before {self._here.call}")

    def _after(self, **_: Any) -> None:
        self._reach(f"after {self._here.call}")

    def _reach(self, name: str) -> None:
        number = len(self._here.passed)
        self._here.passed.append(name)
        self._here.on(number, name)


class Bucket:
    """The work with its bucket.

    `s3` is a client without hooks. The other methods use moto's store itself, in a hundredth of a call's time: what S3
    would return to a read at this moment.
    """

    def __init__(self, work: ModuleType, s3: Any) -> None:
        self.work = work
        self.s3 = s3
        self.client = work._s3
        self.boundaries = Boundaries(self.client)
        self._names = (f"r-{number}" for number in itertools.count(1))
        self._backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        self._objects = self._backend.buckets["data"].keys
        self.put(ORDERS)

    def new_request_id(self) -> str:
        return next(self._names)

    def put(self, content: bytes, key: str = INPUT_KEY) -> None:
        self._backend.put_object("data", key, content)

    def perform(self, made: Message, on: AtBoundary = nothing, seconds: float = 50.0) -> Any:
        """Make one attempt, with `on` at each of its boundaries. Returns its result, or the exception that ended it."""
        self.boundaries.begin(on)
        try:
            return self.work.perform(made, seconds)
        except (Exception, Killed) as error:
            return error

    def count_boundaries(self, made: Message) -> int:
        self.perform(made)
        return len(self.boundaries.passed)

    def content(self, key: str) -> bytes | None:
        """The object's current content, which every read of S3 returns; None without an object."""
        current = self._objects.get(key)
        content: bytes | None = getattr(current, "value", None)  # a delete marker has none
        return content

    def manifest(self, request_id: str) -> dict[str, Any] | None:
        manifest: dict[str, Any] | None = json.loads(self.content(f"work/published/{request_id}.json") or "null")
        return manifest

    def read(self, request_id: str) -> View:
        """What a reader finds: the content of every part that the manifest names."""
        manifest = self.manifest(request_id)
        return manifest and {part["value"]: self.content(part["key"]) for part in manifest["parts"]}

    def parts(self, request_id: str) -> list[str]:
        """The keys of all existing parts, named by a manifest or not."""
        return sorted(
            k for k in self._objects if k.startswith(f"work/parts/{request_id}/") and self.content(k) is not None
        )

    def named_parts(self, request_id: str) -> list[str]:
        return sorted(part["key"] for part in (self.manifest(request_id) or {"parts": []})["parts"])

    def times_published(self, request_id: str) -> int:
        """The number of writes and deletes of the manifest: the bucket keeps all versions."""
        return len(self._objects.getlist(f"work/published/{request_id}.json", []))


def kill_at(boundary: int) -> AtBoundary:
    return fail_at(boundary, Killed())


def fail_at(boundary: int, error: BaseException) -> AtBoundary:
    def on(number: int, name: str) -> None:
        if number == boundary:
            raise error

    return on


def fail_on(text: str, error: BaseException) -> AtBoundary:
    """Fail at every boundary whose name starts with the text."""

    def on(number: int, name: str) -> None:
        if name.startswith(text):
            raise error

    return on
