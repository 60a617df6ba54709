"""The bucket as its readers see it, and the work's calls as a numbered row of boundaries."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from slotkeeper.retry.message import Message
from tests.support.boundary import Killed

INPUT_KEY = "work/input/orders.jsonl"
ORDERS = b'{"city": "Oslo", "n": 1}\n{"city": "Rom/a", "n": 2}\n{"n": 3, "city": "Oslo"}\n'
BY_CITY = {
    "Oslo": b'{"city": "Oslo", "n": 1}\n{"n": 3, "city": "Oslo"}\n',
    "Rom/a": b'{"city": "Rom/a", "n": 2}\n',
}
MANIFEST_PUT = "PutObject work/published/"

type AtBoundary = Callable[[int, str], None]


def nothing(number: int, name: str) -> None:
    """Passes the boundary."""


def request(request_id: str = "r", attempt: int = 1, **payload: Any) -> Message:
    fields = {"input_key": INPUT_KEY, "split_by": "city", **payload}
    return Message(request_id, fields, tuple(float(n) for n in range(1, attempt)))


class Boundaries:
    """Every point just before and just after a call of the work, numbered for each thread as it passes them.

    A test's `on(number, name)` runs there; the name is like "before PutObject work/published/r.json". What it raises is
    what the caller sees, so after a call it is the answer that is lost.
    """

    def __init__(self, client: Any) -> None:
        self._here = threading.local()
        self.begin(nothing)
        client.meta.events.register("provide-client-params.s3", self._note)
        client.meta.events.register("before-call.s3", self._before)
        client.meta.events.register("after-call.s3", self._after)

    @property
    def passed(self) -> list[str]:
        """The names of those that this thread has passed since it began."""
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
    """`s3` is a client of the readers' own, with nothing hooked into it."""

    def __init__(self, work: ModuleType, s3: Any) -> None:
        self.work = work
        self.s3 = s3
        self.client = work._s3
        self.boundaries = Boundaries(self.client)
        self._names = (f"r-{number}" for number in itertools.count(1))
        self.put(ORDERS)

    def new_request_id(self) -> str:
        return next(self._names)

    def put(self, content: bytes, key: str = INPUT_KEY) -> None:
        self.s3.put_object(Bucket="data", Key=key, Body=content)

    def perform(self, made: Message, on: AtBoundary = nothing, seconds: float = 50.0) -> Any:
        """One attempt, with `on` at each of its boundaries: the result, or the exception that it ended with."""
        self.boundaries.begin(on)
        try:
            return self.work.perform(made, seconds)
        except (Exception, Killed) as error:
            return error

    def count_boundaries(self, made: Message) -> int:
        self.perform(made)
        return len(self.boundaries.passed)

    def manifest(self, request_id: str) -> dict[str, Any] | None:
        try:
            body = self.s3.get_object(Bucket="data", Key=f"work/published/{request_id}.json")["Body"].read()
        except self.s3.exceptions.NoSuchKey:
            return None
        manifest: dict[str, Any] = json.loads(body)
        return manifest

    def read(self, request_id: str) -> dict[str, bytes] | None:
        """What a reader sees: None, or the content of every part that the manifest names."""
        manifest = self.manifest(request_id)
        if manifest is None:
            return None
        return {part["value"]: self._content(part["key"]) for part in manifest["parts"]}

    def _content(self, key: str) -> bytes:
        content: bytes = self.s3.get_object(Bucket="data", Key=key)["Body"].read()
        return content

    def parts(self, request_id: str) -> list[str]:
        """The keys of all the parts that are there, named by a manifest or not."""
        objects = self.s3.list_objects_v2(Bucket="data", Prefix=f"work/parts/{request_id}/").get("Contents", [])
        return sorted(each["Key"] for each in objects)

    def named_parts(self, request_id: str) -> list[str]:
        return sorted(part["key"] for part in (self.manifest(request_id) or {"parts": []})["parts"])

    def times_published(self, request_id: str) -> int:
        """How often the manifest was ever written: the bucket keeps its versions."""
        versions = self.s3.list_object_versions(Bucket="data", Prefix=f"work/published/{request_id}.json")
        return len(versions.get("Versions", [])) + len(versions.get("DeleteMarkers", []))


def kill_at(boundary: int) -> AtBoundary:
    return fail_at(boundary, Killed())


def fail_at(boundary: int, error: BaseException) -> AtBoundary:
    def on(number: int, name: str) -> None:
        if number == boundary:
            raise error

    return on


def fail_on(text: str, error: BaseException) -> AtBoundary:
    """As `fail_at`, by what the boundary's name begins with; each time."""

    def on(number: int, name: str) -> None:
        if name.startswith(text):
            raise error

    return on
