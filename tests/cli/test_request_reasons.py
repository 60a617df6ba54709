"""`slotkeeper request show`: why a request waits, when a stopped one frees its slot, and requests of the worker."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from slotkeeper.retry.ledger import Claimed, Ledger
from slotkeeper.retry.message import Message
from slotkeeper.slots.cancellation import Cancellation
from slotkeeper.slots.process import Holder
from slotkeeper_cli import request_finder
from slotkeeper_cli.commands import explain
from slotkeeper_cli.request_states import RequestState
from slotkeeper_cli.slot_release import SlotRelease, estimate
from slotkeeper_cli.waiting_requests import waiting_requests
from tests.cli.doctor_facts import process, waiting_request
from tests.cli.operator_account import Operator
from tests.cli.queue_contents import give_up, send_dead_letter
from tests.cli.refused_requests import NOW
from tests.support.module_time import replace_time

PAGE = (Path(__file__).parents[2] / "docs" / "operator.md").read_text()


@pytest.fixture(autouse=True)
def _a_minute_later(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (request_finder, explain):
        replace_time(monkeypatch, module, time=lambda: NOW + 60)


def _show(operator: Operator, request_id: str) -> Any:
    return operator.run("request", "show", request_id, "--json").json


def test_a_waiting_request_shows_the_holders_and_one_behind_it_the_head_too(operator: Operator) -> None:
    holder = operator.hold("a")
    operator.wait("b")

    (first,) = _show(operator, "b")["found"][0]["attempts"]
    assert (first["state"], first["behind"], first["because"]) == ("waiting", "other requests", "its slot is in use")
    (held,) = first["holders"]
    assert (held["request_id"], held["execution"], held["age_seconds"]) == ("a", holder, 60)

    operator.send("c")
    queued = _show(operator, "c")
    (queue,) = queued["queues"]
    assert (queued["found"], queued["state"], queue["process"]) == ([], "perhaps queued", "sample")
    (head,) = queue["waiting"]
    assert (head["request_id"], head["waited_seconds"]) == ("b", 60)
    assert queue["holders"] == [held]
    text = operator.run("request", "show", "c").stdout
    assert "c: perhaps queued. RequestQueue has about 3 messages of all processes" in text
    assert "Probably in sample behind 1 holder and request b, which has waited for 1 min (its slot is in use)" in text
    assert f"a  RUNNING for 1 min  {holder}" in text


def test_a_registered_request_that_has_run_is_not_shown_as_the_head(operator: Operator) -> None:
    operator.hold("a")
    operator.start_and_wait_again("b")
    assert _show(operator, "c")["queues"][0]["waiting"] == []


HOLDER = Holder("RUNNING", 1, "", None, {})
HELD = {"holders": {"p-1": HOLDER}, "slots_in_use": 1}
HEAVY = {"holders": {"p-1": replace(HOLDER, weight=3)}, "slots_in_use": 3}
MOST = {"holders": {f"p-{number}": HOLDER for number in range(500)}, "slots_in_use": 500}
FULL = {"slot_limit": 2, "holders": {"p-1": HOLDER, "p-2": HOLDER}, "slots_in_use": 2}


@pytest.mark.parametrize(
    ("changes", "kind", "reason"),
    [
        ({"paused": True}, "a pause", "the process is paused"),
        ({"slot_limit": 0}, "the limit", "the process has no slots"),
        ({"slot_limit": 1, **HELD}, "other requests", "its slot is in use"),
        (FULL, "other requests", "all 2 slots are in use"),
        ({"slot_limit": 2, **HELD}, "nothing", "a slot is free, and the request is being woken"),
        ({"slot_limit": 600, **MOST}, "other requests", "the process has 500 holders, which is the maximum"),
        ({"slot_limit": 3, **HEAVY}, "other requests", "weight 1 does not fit: 3 of 3 in use"),
        ({"slot_limit": 0, "paused": True}, "the limit", "the process has no slots"),
    ],
)
def test_why_the_first_request_of_a_process_waits(changes: dict[str, Any], kind: str, reason: str) -> None:
    waiting = waiting_request()
    of = process(waiting={"normal": waiting}, **changes)
    assert (behind(of, waiting), because(of, waiting)) == (kind, reason)


def test_a_request_waits_behind_each_higher_priority_that_is_not_blocked() -> None:
    low, normal, high = (waiting_request(one, request_id=one) for one in ("low", "normal", "high"))
    of = process(waiting={"high": high, "normal": normal, "low": low})
    assert because(of, low) == because(of, normal) == "behind the higher priority high: high"
    assert because(of, high) == "a slot is free, and the request is being woken"
    of = process(waiting={"high": replace(high, weight=4), "normal": normal, "low": low})
    assert because(of, low) == "behind the higher priority normal: normal"
    of = process(waiting={"high": high, "low": low}, paused=True)
    assert because(of, low) == "the process is paused"


def test_a_request_that_does_not_wait_is_not_a_head() -> None:
    late = waiting_request("low", since=int(NOW) - 14 * 86_400)
    of = process(waiting={"low": late, "high": waiting_request("high", execution="p-1"), "normal": waiting_request()})
    assert [one.priority for one in waiting_requests(of, NOW)] == ["high", "normal"]
    of = replace(of, holders={"p-1": HOLDER}, cancelled={"p-first": Cancellation(1)})
    assert waiting_requests(of, NOW) == []


def test_a_waiting_request_shows_priority_weight_and_the_requests_ahead(operator: Operator) -> None:
    operator.processes.set_limit("sample", 6)
    operator.hold("a", weight=4)
    operator.wait("heavy", "sample", "low", weight=3)
    operator.wait("next", weight=5)
    operator.wait("urgent", "sample", "high", weight=6)

    (attempt,) = _show(operator, "heavy")["found"][0]["attempts"]

    assert (attempt["priority"], attempt["weight"], attempt["behind"]) == ("low", 3, "a higher priority")
    assert [(one["request_id"], one["weight"]) for one in attempt["ahead"]] == [("urgent", 6), ("next", 5)]
    text = operator.run("request", "show", "heavy").stdout
    for line in (
        "    priority: low\n    weight: 3\n    since: ",
        "    because: behind the higher priority high: urgent\n"
        "      urgent (priority high, weight 6), waiting for 1 min: weight 6 does not fit: 4 of 6 in use\n"
        "      next (weight 5), waiting for 1 min: behind the higher priority high: urgent\n"
        "      a  RUNNING for 1 min, weight 4  sample-",
    ):
        assert line in text
    operator.processes.set_limit("sample", 5)
    text = operator.run("request", "show", "urgent").stdout
    assert "because: blocked: weight 6 above the limit 5\n    -> slotkeeper process set-limit sample 6\n" in text
    queued = operator.run("request", "show", "behind all").stdout
    assert "request urgent (priority high, weight 6), which has waited for 1 min and request next (weight 5)" in queued


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"paused": True}, ("a pause", "the process is paused")),
        ({"default_weight": 4}, ("the limit", "blocked: weight 4 above the limit 3")),
        ({"slots_in_use": 3}, ("other requests", "weight 1 does not fit: 3 of 3 in use")),
    ],
)
def test_a_queue_without_a_head_waits_for_the_default_weight(changes: dict[str, Any], cause: tuple[str, str]) -> None:
    seen = queue_cause(process(**changes), [])
    assert (seen["behind"], seen["because"]) == cause


def test_an_attempt_shows_the_priority_and_weight_of_its_request(operator: Operator) -> None:
    operator.processes.set_limit("sample", 6)
    name = operator.hold("a", weight=4, priority="high")
    (running,) = _show(operator, "a")["found"][0]["attempts"]
    assert (running["state"], running["priority"], running["weight"]) == ("running", "high", 4)
    operator.slots.release("sample", name, operator.process().holders[name].raw)
    (ended,) = _show(operator, "a")["found"][0]["attempts"]
    assert (ended["priority"], ended["weight"]) == ("high", 4)
    send_dead_letter(
        operator, json.dumps({"process": "sample", "request_id": "b", "priority": "low"}), group="sample#low"
    )
    (refused,) = _show(operator, "b")["found"][0]["attempts"]
    assert (refused["priority"], refused["weight"]) == ("low", None)


def test_a_stopped_request_shows_by_when_its_slot_is_free(operator: Operator) -> None:
    name = operator.hold("a")
    run = operator.run_glue(name)
    operator.stop(name)

    (attempt,) = _show(operator, "a")["found"][0]["attempts"]
    assert (attempt["state"], attempt["status"], attempt["glue_run"]["id"]) == ("stopped", "ABORTED", run)
    ended, free = (datetime.fromisoformat(attempt[name]) for name in ("ended", "slot_free_by"))
    assert (free - ended).total_seconds() == 120 + 3 * 60
    assert attempt["slot_usually_free_after_seconds"] == 65
    shown = operator.run("request", "show", "a").stdout
    assert re.search(r"its slot will be free by about .+, usually 1 min 5 s after its Glue run has ended\n", shown)
    refused = operator.run("request", "cancel", "a", "--stop", "--yes")
    assert refused.exit_code == 3
    assert "has ended (ABORTED): there is nothing to cancel. Its slot will be free by about " in refused.stderr


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


# Requests of the worker --------------------------------------------------------------------------------------------


def _fail_once(operator: Operator, request_id: str) -> tuple[Ledger, Message, Claimed]:
    ledger = Ledger(operator.dynamodb, operator.outputs["RequestLedgerTableName"])
    message = Message(request_id, {"city": "Oslo"})
    claimed = ledger.claim(message, "claim", NOW, 125)
    assert isinstance(claimed, Claimed)
    ledger.record(message, claimed, {"when": NOW + 60, "counted": True}, "HTTP 503")
    return ledger, message, claimed


def test_a_work_request_is_shown_with_its_attempts(operator: Operator) -> None:
    ledger, message, claimed = _fail_once(operator, "w")
    ledger.settle_waiting(message, claimed, NOW + 60)

    shown = _show(operator, "w")
    assert (shown["found"], shown["work"]["state"], shown["work"]["attempts"]) == ([], "waiting", 1)
    assert shown["work"]["next_attempt_at"] == "2026-09-21T14:14:20Z"
    assert [(one["attempt"], one["error"]) for one in shown["work"]["history"]] == [(1, "HTTP 503")]
    text = operator.run("request", "show", "w").stdout
    assert "w in the worker: waiting\n  attempt 1: failed  " in text
    assert "  attempt 2: due " in text

    second = message.after(NOW)
    again = ledger.claim(second, "second", NOW + 60, 125)
    assert isinstance(again, Claimed)
    ledger.settle_succeeded(second, again, "{}")
    assert _show(operator, "w")["work"]["state"] == "succeeded"
    assert "  attempt 2: succeeded  " in operator.run("request", "show", "w").stdout


def test_a_dead_lettered_work_request_is_shown_with_its_message(operator: Operator) -> None:
    ledger, message, claimed = _fail_once(operator, "w")
    ledger.settle_dead_lettered(message, claimed)
    give_up(operator, "w")
    give_up(operator, "without a row")
    for request_id in ("w", "without a row"):
        work = _show(operator, request_id)["work"]
        assert (work["state"], work["dead_letter"]["queue"]) == ("dead-lettered", "WorkDeadLetterQueue")
        assert work["dead_letter"]["code"] == "AttemptsExhausted"
    assert "AttemptsExhausted: it failed" in operator.run("request", "show", "w").stdout


def test_a_malformed_row_of_the_ledger_is_reported(operator: Operator) -> None:
    table = operator.outputs["RequestLedgerTableName"]
    operator.dynamodb.put_item(TableName=table, Item={"request_id": {"S": "w"}, "status": {"N": "1"}})
    assert "of the request ledger: status" in _show(operator, "w")["work"]["malformed"]


def test_the_search_names_the_places_that_it_read(operator: Operator) -> None:
    slots = ["SlotTable", "executions", "RequestDeadLetterQueue", "FailedRequestQueue"]
    work = ["RequestLedgerTable", "WorkDeadLetterQueue", "RetryScheduleDeadLetterQueue"]
    assert _show(operator, "unknown")["searched"] == slots + work
    ledger = operator.outputs.pop("RequestLedgerTableName")
    assert operator.run("request", "show", "unknown").stdout.endswith(f"Searched: {', '.join(slots)}.\n")
    operator.outputs["RequestLedgerTableName"] = ledger


# The states --------------------------------------------------------------------------------------------------------


def test_the_help_and_the_page_list_the_states_of_the_code(operator: Operator) -> None:
    help_text = " ".join(re.sub(r"[│|]", " ", operator.run("request", "show", "--help").stdout).split())
    (row,) = re.findall(r"^\| `slotkeeper request show ID` \| (.+) \|$", PAGE, re.MULTILINE)
    *most, last = RequestState
    for text in (help_text, row):
        assert f"{', '.join(most)} or {last}" in text
