"""`slotkeeper web`: a reading is made once for all open pages, and a slow one delays no other page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from slotkeeper_cli.web import frame, shared
from slotkeeper_cli.web.frame import Console
from slotkeeper_cli.web.shared import FORGOTTEN_AFTER, REFRESH, Data, PageReading, SharedReadings, Snapshot
from tests.module_time import replace_time
from tests.waiting import NEVER


class Source:
    """The result: the number of the reading, once `open` is set."""

    def __init__(self, name: str = "source", *, is_slow: bool = False) -> None:
        self.reads, self.open = 0, Event()
        self.open.set()
        self.error: Exception | None = None
        self.reading = PageReading((name,), self._read, is_slow=is_slow)

    def _read(self) -> Data:
        assert self.open.wait(NEVER)
        self.reads += 1
        if self.error:
            raise self.error
        return {"number": self.reads}


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of the readings: seconds since the epoch, and those that a reading takes."""
    clock = [1000.0]
    replace_time(monkeypatch, shared, time=lambda: clock[0], monotonic=lambda: clock[0])
    return clock


def running(steps: Callable[[SharedReadings], Awaitable[None]]) -> None:
    async def run() -> None:
        await steps(SharedReadings())

    asyncio.run(run())


def test_pages_that_ask_at_the_same_time_share_one_reading(now: list[float]) -> None:
    source = Source()

    async def steps(readings: SharedReadings) -> None:
        source.open.clear()
        eight = [asyncio.create_task(readings.read(source.reading)) for _ in range(8)]
        await asyncio.sleep(0)
        source.open.set()
        assert {(await each).data["number"] for each in eight} == {1}
        assert (await readings.read(source.reading)).data["number"] == 1
        now[0] += REFRESH
        assert (await readings.read(source.reading)).data["number"] == 2

    running(steps)


def test_a_slow_history_that_many_pages_wait_for_delays_no_other_page() -> None:
    histories = [Source(f"history {number}", is_slow=True) for number in range(20)]
    overview = Source("overview")

    async def steps(readings: SharedReadings) -> None:
        for each in histories:
            each.open.clear()
        waiting = [asyncio.create_task(readings.read(each.reading)) for each in histories for _ in range(8)]
        await asyncio.sleep(0)
        assert (await readings.read(overview.reading)).data["number"] == 1
        assert not any(each.done() for each in waiting)
        for each in histories:
            each.open.set()
        await asyncio.gather(*waiting)
        assert [each.reads for each in histories] == [1] * 20

    running(steps)


def test_a_page_that_is_closed_does_not_end_the_reading_of_the_others() -> None:
    source = Source()

    async def steps(readings: SharedReadings) -> None:
        source.open.clear()
        closed, other = (asyncio.create_task(readings.read(source.reading)) for _ in range(2))
        await asyncio.sleep(0)
        closed.cancel()
        source.open.set()
        assert (await other).data["number"] == 1

    running(steps)


def test_an_error_reaches_each_page_that_waits_and_is_not_kept() -> None:
    source = Source()

    async def steps(readings: SharedReadings) -> None:
        source.error = LookupError("no such process")
        for each in [asyncio.create_task(readings.read(source.reading)) for _ in range(2)]:
            with pytest.raises(LookupError):
                await each
        assert readings.soon(source.reading) is None
        source.error = None
        assert (await readings.read(source.reading)).data["number"] == source.reads

    running(steps)


def test_after_an_action_everything_is_read_again_also_what_is_being_read() -> None:
    source = Source()

    async def steps(readings: SharedReadings) -> None:
        source.open.clear()
        before = asyncio.create_task(readings.read(source.reading))
        await asyncio.sleep(0)
        readings.forget()
        after = asyncio.create_task(readings.read(source.reading))
        await asyncio.sleep(0)
        source.open.set()
        assert sorted([(await before).data["number"], (await after).data["number"]]) == [1, 2]

    running(steps)


def test_a_reading_that_takes_long_is_repeated_less_often(now: list[float]) -> None:
    source = Source()

    def slowly() -> Data:
        now[0] += 10
        return source.reading.read()

    slow = PageReading(("slow",), slowly)

    async def steps(readings: SharedReadings) -> None:
        await readings.read(slow)
        now[0] += REFRESH
        assert (await readings.read(slow)).data["number"] == 1
        now[0] += 40
        assert (await readings.read(slow)).data["number"] == 2

    running(steps)


def test_what_no_page_shows_any_more_is_not_kept(now: list[float]) -> None:
    first, second = Source("first"), Source("second")

    async def steps(readings: SharedReadings) -> None:
        await readings.read(first.reading)
        assert readings.known(first.reading)
        now[0] += FORGOTTEN_AFTER + 1
        await readings.read(second.reading)
        assert readings.known(first.reading) is None
        assert readings.soon(second.reading)

    running(steps)


def test_a_page_does_not_go_back_to_what_was_read_before_an_action(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = SimpleNamespace(id="client", on_delete=lambda _: None)
    page = SimpleNamespace(timer=lambda *_, **__: None, context=SimpleNamespace(client=client))
    monkeypatch.setattr(frame, "ui", page)
    source, shown = Source(), list[int]()

    async def steps(readings: SharedReadings) -> None:
        before, after = Snapshot({"number": 1}, now[0]), Snapshot({"number": 2}, now[0] + 1)
        answers = iter([before, after])
        late = asyncio.Event()

        async def read(_: PageReading, *, again: bool = False) -> Snapshot:
            snapshot = next(answers)
            if snapshot is before:
                await late.wait()
            return snapshot

        monkeypatch.setattr(readings, "read", read)
        console: Any = SimpleNamespace(readings=readings, _open={})
        refresh = Console._follow(
            console, source.reading, lambda _at, data, _error: shown.append((data or {})["number"])
        )
        slow = asyncio.create_task(refresh())  # type: ignore[arg-type]
        await asyncio.sleep(0)
        await refresh()
        late.set()
        await slow

    running(steps)
    assert shown == [2]
