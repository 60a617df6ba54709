"""Hand-offs: the seconds that a slot was free before the request that waited for it started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from slotkeeper.slots.executions import Execution
from slotkeeper.slots.hand_off import LIST_LAG_SECONDS, LOOK_BACK_SECONDS, HandOffs, Stay, hand_off
from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.protocol import Candidate
from slotkeeper.slots.rate import Rate
from tests.unit.conftest import CONTEXT, NOW, Account, Load, registration

WAITING = Process("p", 1, 1, {}, paused=False, target="job", waiting={"normal": registration("p-b")})
STARTED = replace(WAITING, waiting={})
HOLDER = Holder("RUNNING", int(NOW), "job", None, {})
INTERVAL = 60.0


@pytest.mark.parametrize(
    ("others", "limit", "seconds"),
    [
        ([Stay(0, 90)], 1, 10.0),
        ([Stay(0, 90), Stay(0)], 2, 10.0),
        ([Stay(0, 80), Stay(0, 90)], 2, 20.0),
        ([Stay(0, 80), Stay(80, 90), Stay(0)], 2, 10.0),  # the slot freed at 80 was reserved immediately
        ([Stay(0), Stay(90), Stay(0, 90), Stay(0, 50)], 3, 50.0),  # 90: freed and reserved; the third was free
        ([Stay(0, 100.2)], 1, 0.0),  # released its slot, and ended a moment later
        ([Stay(0, 90), Stay(200, 300)], 1, 10.0),
        ([], 2, None),  # a slot was free throughout
        ([Stay(0, 50), Stay(60, 90)], 2, None),
    ],
)
def test_a_hand_off_lasts_from_the_release_of_its_slot(others: list[Stay], limit: int, seconds: float | None) -> None:
    assert hand_off(100, others, limit) == seconds


class Executions:
    """Step Functions' list of executions, as `Workflow` returns it."""

    def __init__(self) -> None:
        self.listed: dict[str, tuple[float, float | None]] = {}
        self.reads: list[float] = []

    def since(self, moment: float) -> Iterator[Execution]:
        self.reads.append(moment)
        for name, (started, stopped) in self.listed.items():
            status = "RUNNING" if stopped is None else "SUCCEEDED"
            yield Execution(name, status, stopped, started_at=started)


@pytest.fixture
def executions() -> Executions:
    return Executions()


@pytest.fixture
def hand_offs(executions: Executions) -> HandOffs:
    """After a run in which p-b waited for p-a's slot."""
    executions.listed["p-a"] = (NOW - 100, None)
    made = HandOffs(executions)  # type: ignore[arg-type]
    assert made.measure([WAITING], NOW) == {}
    return made


def _hand_on(executions: Executions, ended: float, started: float) -> None:
    executions.listed |= {"p-a": (NOW - 100, ended), "p-b": (started, None)}


def test_a_hand_off_is_measured_once(executions: Executions, hand_offs: HandOffs) -> None:
    _hand_on(executions, NOW + 20, NOW + 23)
    assert hand_offs.measure([STARTED], NOW + INTERVAL) == {"p": 3.0}
    assert hand_offs.measure([STARTED], NOW + 2 * INTERVAL) == {}


def test_a_start_is_measured_after_the_lists_lag(executions: Executions, hand_offs: HandOffs) -> None:
    executions.listed["p-b"] = (NOW + 23, None)  # p-a is still listed as running
    assert hand_offs.measure([STARTED], NOW + 24) == {}
    _hand_on(executions, NOW + 20, NOW + 23)
    assert hand_offs.measure([STARTED], NOW + 23 + LIST_LAG_SECONDS) == {"p": 3.0}


def test_the_request_of_the_highest_priority_is_measured(executions: Executions, hand_offs: HandOffs) -> None:
    """p-b may wait for hours while requests of a higher priority pass it."""
    overtaken = replace(WAITING, waiting={"normal": registration("p-b"), "high": registration("p-c", "high")})
    assert hand_offs.measure([overtaken], NOW + INTERVAL) == {}
    executions.listed |= {"p-a": (NOW - 100, NOW + 80), "p-c": (NOW + 84, None)}
    assert hand_offs.measure([WAITING], NOW + 2 * INTERVAL) == {"p": 4.0}


def test_a_process_whose_holders_have_weights_is_not_measured(executions: Executions, hand_offs: HandOffs) -> None:
    """Step Functions does not list weights, so the time at which a request fits is unknown."""
    _hand_on(executions, NOW + 20, NOW + 23)
    assert hand_offs.measure([replace(STARTED, holders={"p-b": replace(HOLDER, weight=2)})], NOW + INTERVAL) == {}


def test_a_process_with_a_rate_is_not_measured(executions: Executions, hand_offs: HandOffs) -> None:
    _hand_on(executions, NOW + 20, NOW + 23)
    assert hand_offs.measure([replace(STARTED, rate=Rate(1, 60))], NOW + INTERVAL) == {}


def test_no_hand_off_is_measured_where_a_lease_was_seen(executions: Executions) -> None:
    """Its slot would seem free: Step Functions does not list leases."""
    lease = Holder("LEASED", int(NOW), "", None, {}, until=int(NOW) + 60, code="c")
    executions.listed["p-a"] = (NOW - 100, None)
    hand_offs = HandOffs(executions)  # type: ignore[arg-type]
    hand_offs.measure([replace(WAITING, holders={"lease-f-0": lease})], NOW)
    hand_offs.measure([WAITING], NOW + 30)
    executions.listed |= {"p-a": (NOW - 100, NOW + 20), "p-b": (NOW + 40, None)}
    assert hand_offs.measure([STARTED], NOW + 60) == {}


@pytest.mark.parametrize("changed", [{"slot_limit": 2}, {"paused": True}])
def test_after_a_change_by_an_operator_there_is_no_sample(
    executions: Executions, hand_offs: HandOffs, changed: dict[str, int | bool]
) -> None:
    _hand_on(executions, NOW + 20, NOW + 50)
    assert hand_offs.measure([replace(STARTED, **changed)], NOW + INTERVAL) == {}  # type: ignore[arg-type]
    assert hand_offs.measure([STARTED], NOW + 2 * INTERVAL) == {}


def test_a_start_before_the_containers_first_run_is_no_sample(executions: Executions) -> None:
    _hand_on(executions, NOW - 60, NOW - 50)
    hand_offs = HandOffs(executions)  # type: ignore[arg-type]
    assert [hand_offs.measure([STARTED], NOW), hand_offs.measure([STARTED], NOW + INTERVAL)] == [{}, {}]


def test_the_list_is_read_only_when_the_request_no_longer_waits(executions: Executions, hand_offs: HandOffs) -> None:
    for number, seen in enumerate([WAITING, WAITING, STARTED, STARTED]):
        hand_offs.measure([seen], NOW + number * INTERVAL)
    assert executions.reads == [NOW + 2 * INTERVAL - LOOK_BACK_SECONDS]


def test_nothing_is_measured_above_the_maximum_of_executions(
    executions: Executions, hand_offs: HandOffs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slotkeeper.slots.hand_off.MAX_EXECUTIONS", 1)
    _hand_on(executions, NOW + 20, NOW + 23)
    assert hand_offs.measure([STARTED], NOW + INTERVAL) == {}


def test_a_run_continues_when_the_measurement_fails(
    account: Account, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    janitor = load("janitor")

    def fail(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(janitor._hand_offs, "measure", fail)
    account.slots.reserve(Candidate("p", "p-1"), NOW - 10**9)
    assert janitor.handler({}, CONTEXT) == {"SlotsReclaimed": 1, "JanitorErrors": 1}
