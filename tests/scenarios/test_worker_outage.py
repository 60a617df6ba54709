"""`make run-worker OUTAGE=yes`: the figures of an outage, and each claim failing on records that break it alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dev.scenarios.worker import worker_mix, worker_outage
from dev.scenarios.worker.worker_outage import OutageRecord, Settings, claims, figures
from slotkeeper.retry.downstream import rules
from tests.scenarios.outage_run import AFTER, BEFORE, DURING, ORIGIN, RETRIED, call, record, retried

FEW = "the downstream is hardly called while it is down"
PROBES = "one probe at a time, each after its wait"
ATTEMPTS = "the outage uses up at most one attempt in all"
FOUND = "the first probe after the outage succeeds"


def findings(recorded: OutageRecord, *, ok: bool | None) -> dict[str, str]:
    return {claim.name: claim.finding for claim in claims(recorded) if claim.ok is ok}


def test_a_run_whose_breaker_keeps_the_rules_passes_every_check() -> None:
    assert findings(record(), ok=True) == {
        FEW: "7 calls in 20 s; 7 after the last success, 14 allowed",
        PROBES: "6 probes, 0.2 s apart or more",
        ATTEMPTS: "1 attempt of 7 failed calls; 1 earlier call still succeeded in it",
        FOUND: "200, 4.5 s after it; a probe is due within 4 s",
    }


def test_the_figures_count_from_the_first_request_and_from_the_end_of_the_outage() -> None:
    assert figures(record(), ORIGIN, ORIGIN + 60.0) == {
        "began": 10.0,
        "ended": 30.0,
        "calls": 7,
        "probes": 4,
        "counted": 1,
        "first_call": 3.3,
        "first_success": 4.5,
        "empty": 30.0,
    }


def test_without_any_call_in_or_after_the_outage_nothing_is_shown() -> None:
    made = figures(record(BEFORE), ORIGIN, ORIGIN + 60.0)
    assert (made["calls"], made["first_call"], made["first_success"]) == (0, None, None)
    assert findings(record(BEFORE), ok=True) == {}
    assert findings(record(BEFORE), ok=False) == {FOUND: "no call after the outage"}


STORM = [call("a", 12.0 + number / 10, 12.5 + number / 10, "503") for number in range(60)]
FAILED_AGAIN = [call("c", 33.3, 33.8, "dropped"), call("b", 37.9, 38.4, "200")]


@pytest.mark.parametrize(
    ("recorded", "broken"),
    [
        (
            record([*BEFORE, *DURING[:3], *STORM, *AFTER]),
            {
                FEW: "63 calls in 20 s; 63 after the last success, 14 allowed",
                PROBES: "too early: key a -0.4 s after the one before, key a -0.4 s after the one before, "
                "key a -0.4 s after the one before, key a -0.4 s after the one before, "
                "key a -0.4 s after the one before and 54 more",
            },
        ),
        (
            record([*BEFORE, *DURING[:6], call("f", 24.2, 24.7, "503"), *AFTER]),
            {PROBES: "too early: key f -0.4 s after the one before"},
        ),
        (
            record([*BEFORE, *DURING, call("d", 30.5, 31.0, "404"), *AFTER]),
            {PROBES: "too early: key d 1.3 s after the one before"},
        ),
        (
            record(log=[*RETRIED[:2], *(replace(each, counted=True) for each in RETRIED[2:4]), *RETRIED[4:]]),
            {ATTEMPTS: "3 attempts of 7 failed calls; 1 earlier call still succeeded in it"},
        ),
        (record([*BEFORE, *DURING, *FAILED_AGAIN]), {FOUND: "dropped, 3.8 s after it; a probe is due within 4 s"}),
    ],
    ids=[
        "no breaker",
        "two probes at the same time",
        "a probe too early",
        "attempts used up",
        "not found by the first probe",
    ],
)
def test_a_broken_rule_fails_its_check_and_no_other(recorded: OutageRecord, broken: dict[str, str]) -> None:
    assert findings(recorded, ok=False) == broken


def test_calls_before_the_last_success_of_an_earlier_one_do_not_count_against_the_breaker() -> None:
    """A success ends the series of failures, so the breaker opens later."""
    late = call("h", 9.5, 11.4, "200", 1)
    recorded = record([BEFORE[0], late, *DURING, *AFTER])
    assert len(recorded.since_answered) == 4
    assert recorded.probes == []  # it could have closed the breaker


def test_probes_are_the_calls_after_the_breaker_was_seen_open_without_those_permitted_before() -> None:
    assert record().probes == DURING[3:]
    assert record(seen_open=[]).probes == []


def test_a_counted_attempt_from_before_the_outage_or_after_it_is_none_of_its() -> None:
    assert record(log=[retried("a", 9.0, counted=True), retried("a", 10.9)]).counted == []
    assert record(log=[retried("a", 10.9), retried("a", 40.0, counted=True)]).counted == []


def test_the_settings_are_those_of_the_policy() -> None:
    assert Settings.of(worker_mix.POLICY, 3) == Settings(5, 3, 3)


def test_the_waits_for_probes_are_those_of_the_layer() -> None:
    assert (worker_outage.FIRST_PROBE, worker_outage.PROBE_JITTER) == (rules.FIRST_PROBE, rules.PROBE_JITTER)
