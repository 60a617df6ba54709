"""The rate of a process: when a start is due, and texts of rates. test_plan.py has what a queue does until then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotkeeper.slots.processes import Processes
from slotkeeper.slots.rate import Rate
from slotkeeper_cli.rates import parse_rate
from tests.unit.conftest import NOW
from tests.unit.slots.queue_scene import QueueScene

TEN_A_MINUTE = Rate(10, 60)


def _started(rate: Rate, *times: float) -> list[bool]:
    """Whether a request that is queued at each of these times starts immediately, in a process of this rate."""
    scene = QueueScene(limit=99)
    scene.change(rate=rate.item, next_start={"N": "0"})
    started = []
    for at, time in enumerate(times):
        scene.now = time
        (name,) = scene.queue(str(at), when_busy="skip")
        started.append(name in scene.dispatch(leavers=True).started)
    return started


def test_a_burst_may_start_immediately_and_is_saved_up_again_while_nothing_starts() -> None:
    times = [NOW, NOW, NOW, NOW + 5.9, NOW + 6, NOW + 6, NOW + 1000, NOW + 1000, NOW + 1000]
    started = _started(replace(TEN_A_MINUTE, burst=2), *times)
    assert started == [True, True, False, False, True, False, True, True, False]


@pytest.mark.parametrize(("rate", "interval"), [(Rate(10, 60), 6000), (Rate(7, 60), 8572), (Rate(30, 1), 34)], ids=str)
def test_an_interval_is_rounded_up(rate: Rate, interval: int) -> None:
    assert rate.interval == interval


# Malformed rates


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (Rate(0, 60), "rate must have a whole number above 0 as count, got 0"),
        (Rate(-1, 60), "got -1"),
        (Rate(True, 60), "got True"),
        (Rate(1, 0), "rate must have a whole number above 0 as seconds, got 0"),
        (Rate(1, 86_401), "rate must have at most 86400 seconds, got 86401"),
        (Rate(1001, 1), "rate must be at most 1000 starts a second, got 1001 in 1 s"),
        (Rate(10, 60, 11), "rate must have a burst of at most its count, 10, got 11"),
        (Rate(10, 60, 0), "above 0 as burst, got 0"),
    ],
)
def test_a_rate_that_is_not_valid_is_refused(rate: Rate, text: str) -> None:
    scene = QueueScene()
    processes = Processes(scene.dynamodb, "slots")
    for change in (lambda: processes.create("q", 1, rate=rate), lambda: processes.set_rate("p", rate)):
        with pytest.raises(ValueError, match=text):
            change()
    assert scene.process.rate is None


@pytest.mark.parametrize(("text", "burst", "rate"), [("10/minute", 2, Rate(10, 60, 2)), ("1/day", 1, Rate(1, 86_400))])
def test_a_rate_is_written_as_it_is_read(text: str, burst: int, rate: Rate) -> None:
    assert parse_rate(text, burst) == rate
    assert str(rate) == text + (f", burst {burst}" if burst > 1 else "")


@pytest.mark.parametrize("text", ["", "10", "10/", "/minute", "10/fortnight", "1.5/second", "-1/second", "10 / minute"])
def test_a_text_that_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be COUNT/UNIT with the unit second or minute or hour or day"):
        parse_rate(text)
