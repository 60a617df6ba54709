"""`slotkeeper explain`: the conditions of a start, the expected start, and when a stopped request frees its slot."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots.process import MAX_TOKEN_BYTES, Holder
from slotkeeper.slots.targets import NO_TARGET
from slotkeeper_cli.conditions import failing, of_waiting
from slotkeeper_cli.explanation import ExpectedStart, StackFacts, expected_start, explain_queue, lease_conditions
from slotkeeper_cli.holders import SlotRelease, estimate
from slotkeeper_cli.requests import RequestState
from tests.cli.account_contents import NOW
from tests.cli.doctor_facts import process, waiting_request
from tests.cli.operator_account import Operator

WAITING = waiting_request()
PAGE = (Path(__file__).parents[2] / "docs" / "operator.md").read_text()


pytestmark = pytest.mark.usefixtures("a_minute_later")


def _show(operator: Operator, request_id: str) -> Any:
    return operator.run("request", "show", request_id, "--json").json


def test_a_registered_request_that_has_run_is_not_shown_as_the_head(operator: Operator) -> None:
    operator.hold("a")
    operator.start_and_wait_again("b")
    assert _show(operator, "c")["queues"][0]["waiting"] == []


HOLDER = Holder("RUNNING", 1, "", None, {})
MOST = {"holders": {f"p-{number}": HOLDER for number in range(500)}, "slots_in_use": 500}
LONG_TOKEN = {"p-1": replace(HOLDER, task_token="t" * MAX_TOKEN_BYTES)}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"paused": True}, {"pause": "the process is paused"}),
        ({"slot_limit": 0}, {"limit": "the process has no slots"}),
        ({"slot_limit": 600, **MOST}, {"holders": "the process has 500 holders, which is the maximum"}),
        (
            {"slot_limit": 1, "slots_in_use": 3, "holders": {"p-1": HOLDER, "p-2": HOLDER, "p-3": HOLDER}},
            {"slots": "3 of 1 slot in use"},
        ),
        (
            {"slots_in_use": 1, "holders": LONG_TOKEN, "waiting": {"normal": replace(WAITING, token_bytes=1)}},
            {"task tokens": "the callers of the requests that hold slots take all of the item's space for task tokens"},
        ),
    ],
)
def test_the_conditions_that_keep_a_waiting_request_from_starting(
    changes: dict[str, Any], expected: dict[str, str]
) -> None:
    of = process(**{"waiting": {"normal": WAITING}, **changes})
    assert {each.name: each.text for each in of_waiting(of, of.waiting["normal"], NOW)} == expected


def test_a_request_of_a_process_for_leases_is_dead_lettered_when_it_is_received() -> None:
    (condition,) = failing(process(target=NO_TARGET), 1, "normal", now=NOW)
    assert (condition.name, "dead-lettered when it is received" in condition.text) == ("target", True)


def test_a_lease_waits_for_each_registered_request() -> None:
    of = process(target=NO_TARGET, waiting={"low": waiting_request("low", request_id="x")})
    assert [each.text for each in lease_conditions(of, 1, NOW)] == ["behind the waiting request x"]
    assert lease_conditions(process(target=NO_TARGET), 1, NOW) == []


def _waits_for(ages: dict[str, int], durations: list[float], *ahead: int, **changes: Any) -> tuple[Any, Any]:
    """The range of the expected start in seconds from now, with holders of these ages and a limit of two."""
    holders = {name: replace(HOLDER, since=int(NOW) - age) for name, age in ages.items()}
    of = process(**{"holders": holders, "slots_in_use": len(holders), "slot_limit": 2, **changes})
    found = expected_start(of, ahead, 1, durations, NOW)
    assert found.samples == len(durations)
    return tuple(None if each is None else each - NOW for each in (found.earliest, found.latest))


TENS = [10.0 * number for number in range(1, 11)]  # 10 to 100 seconds


@pytest.mark.parametrize(
    ("ages", "durations", "ahead", "expected"),
    [
        pytest.param({"a": 0}, TENS, (), (0, 0), id="a slot is free"),
        pytest.param({"a": 0, "b": 0}, TENS, (), (20, 100), id="the first of two holders that have just started"),
        pytest.param({"a": 50, "b": 0}, TENS, (), (10, 50), id="a holder of this age has at most 50 s left"),
        pytest.param({"a": 50, "b": 0}, TENS, (1,), (20, 100), id="one request is before it, and takes the first slot"),
        pytest.param({"a": 200, "b": 0}, TENS, (), (20, 100), id="a holder that has run for longer than each"),
        pytest.param({"a": 200, "b": 300}, TENS, (), (None, None), id="all holders have run for longer than each"),
        pytest.param({"a": 0, "b": 0}, TENS[:4], (), (None, None), id="too few executions"),
    ],
)
def test_the_expected_start(
    ages: dict[str, int], durations: list[float], ahead: tuple[int, ...], expected: tuple[Any, Any]
) -> None:
    assert _waits_for(ages, durations, *ahead) == expected


def test_a_queued_request_starts_after_the_registered_ones_or_after_the_whole_queue() -> None:
    of = process(slot_limit=1, slots_in_use=1, holders={"p-1": replace(HOLDER, since=int(NOW))})
    facts = StackFacts(NOW, queued=3, slot_seconds={of.name: TENS})
    expected = explain_queue(of, facts).expected
    # The holder takes 20 to 100 s, and each of the two requests that may be before it too.
    assert expected == ExpectedStart(NOW + 20, NOW + 300, 10)


def test_a_lease_may_end_at_any_time_until_its_end() -> None:
    lease = replace(HOLDER, state="LEASED", until=int(NOW) + 30)
    assert _waits_for({}, TENS, holders={"a": lease}, slots_in_use=1, slot_limit=1) == (0, 30 + CLOCK_SKEW_SECONDS)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (ExpectedStart(None, None, 4), "not known: 4 recent executions of the process, 5 are needed"),
        (ExpectedStart(NOW + 20, None, 9), "in 20 s or later: a holder has run for longer than each recent execution"),
        (ExpectedStart(NOW + 20, NOW + 90, 9), "in 20 s to 1 min 30 s, by about "),
        (ExpectedStart(NOW + 20, NOW + 20, 9), "in 20 s, by about "),
    ],
)
def test_the_text_of_an_expected_start(expected: ExpectedStart, text: str) -> None:
    assert expected.text(NOW).startswith(text)


DEFAULTS = {"JanitorSchedule": "rate(1 minute)", "GraceSeconds": "120"}


@pytest.mark.parametrize(
    ("parameters", "run", "seconds"),
    [
        (DEFAULTS, None, 240),
        (DEFAULTS, "STOPPED", 240),
        (DEFAULTS, "STOPPING", 300),
        ({"JanitorSchedule": "rate(5 minutes)", "GraceSeconds": "0"}, None, 600),
        ({"JanitorSchedule": "cron(0 * * * ? *)"}, None, None),
    ],
)
def test_the_slot_is_free_after_the_grace_time_and_the_janitors_runs(
    parameters: dict[str, str], run: str | None, seconds: int | None
) -> None:
    release = estimate(parameters, 1000.0, "job", None if run is None else {"state": run})
    assert release == SlotRelease(None if seconds is None else 1000.0 + seconds, 65)


def test_the_text_of_an_estimate_that_has_passed_or_is_not_known() -> None:
    assert SlotRelease(NOW, 65).text(NOW + 1).endswith(", which has passed: run slotkeeper holder release")
    assert SlotRelease(None, 65).text(NOW).startswith("in a run after GraceSeconds, usually 1 min")


def test_the_search_names_the_places_that_it_read(operator: Operator) -> None:
    slots = ["SlotTable", "executions", "RequestDeadLetterQueue", "FailedRequestQueue", "AuditLogGroup"]
    slots += ["SettledTable", "event source of RequestQueue", "recent executions"]
    work = ["RequestLedgerTable", "WorkDeadLetterQueue", "RetryScheduleDeadLetterQueue"]
    assert _show(operator, "unknown")["searched"] == slots + work
    del operator.outputs["RequestLedgerTableName"]
    assert operator.run("request", "show", "unknown").stdout.endswith(f"Searched: {', '.join(slots)}.\n")


# The states --------------------------------------------------------------------------------------------------------


def test_the_help_and_the_page_list_the_states_of_the_code(operator: Operator) -> None:
    help_text = " ".join(re.sub(r"[│|]", " ", operator.run("request", "show", "--help").stdout).split())
    (row,) = re.findall(r"^\| `slotkeeper explain ID`, `slotkeeper request show ID` \| (.+) \|$", PAGE, re.MULTILINE)
    *most, last = RequestState
    for text in (help_text, row):
        assert f"{', '.join(most)} or {last}" in text
