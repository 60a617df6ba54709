"""The parts that all scenarios share: command line, engine, live view, exit codes, report keys, tables, charts."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from dev.emulator.chat_service import ChatService
from dev.emulator.live_view import LiveView, Snapshot, StallDetector, Stalled, counted, watch
from dev.scenarios.runner import claims
from dev.scenarios.runner import scenario as frame
from dev.scenarios.runner.claims import Claim
from dev.scenarios.runner.scenario import Scenario
from dev.scenarios.slots import slot_report, slot_scenario
from dev.scenarios.soak import soak_figures, soak_scenario
from dev.scenarios.soak.soak_stack import SCRIPT
from dev.scenarios.token import token_figures, token_scenario
from dev.scenarios.token.chat_senders import Try
from dev.scenarios.token.message_feed import Message, MessageFeed
from tests.cli.work_histories import whole
from tests.scenarios import scenario_checks as checks
from tests.scenarios import slot_reports, token_run
from tests.scenarios.scenario_checks import make_command, make_options

SCENARIOS = [slot_scenario, token_scenario, soak_scenario]

# ------------------------------------------------------------------------------------------------------- command line


@pytest.mark.parametrize(
    ("scenario", "variables", "wrong"),
    [
        (
            slot_scenario,
            "REQUESTS=1..2000 LIMIT=1..500 FAIL=0..1 PRIORITIES=no|yes",
            [
                "--priorities 1",
                "--limit 0",
                "--limit 501",
                "--requests 2001",
                "--fail nan",
                "--fail 1.1",
                "--fail -0.1",
                "--limit three",
            ],
        ),
        (
            token_scenario,
            "MESSAGES=1..2000 SENDERS=1..100 INVALIDATIONS=0..50 AUTH_LATENCY=0..3",
            [
                "--messages 0",
                "--senders 101",
                "--invalidations -1",
                "--auth-latency nan",
                "--auth-latency 4",
                "--messages 5 --invalidations 5",
            ],
        ),
        (
            soak_scenario,
            "MINUTES=0.1..120 SEED=any whole number LIMIT=1..20",
            ["--minutes 0", "--minutes nan", "--limit 0", "--limit 21", "--seed one", "--no"],
        ),
    ],
)
def test_a_wrong_option_is_refused_with_the_variables_of_make(
    scenario: ModuleType, variables: str, wrong: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checks.options_are_refused(scenario, variables, wrong, monkeypatch)


@pytest.mark.parametrize(("target", "scenario"), list(zip(("run", "run-chatbot", "soak"), SCENARIOS, strict=True)))
def test_the_makefile_has_the_defaults_of_the_command(target: str, scenario: ModuleType) -> None:
    assert make_options(target) == checks.defaults(scenario)


@pytest.mark.parametrize("options", ["--requests 11", "--limit 2"])
def test_a_run_that_is_too_small_for_priorities_is_refused(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [f"--priorities yes {options}"]
    checks.options_are_refused(slot_scenario, "REQUESTS=1..2000 LIMIT=1..500", wrong, monkeypatch)


def test_with_priorities_the_default_of_the_limit_leaves_room_for_heavy_requests() -> None:
    assert '--limit="4" --fail="0" --priorities="yes"' in make_options("run", "PRIORITIES=yes")
    assert '--limit="9"' in make_options("run", "PRIORITIES=yes", "LIMIT=9")
    assert '--limit="9"' in make_options("run", "PRIORITIES=yes", LIMIT="9")


@pytest.mark.parametrize("target", ["bench", "smoke"])
def test_make_lists_the_parts_only_on_request(target: str) -> None:
    assert "--list" not in make_command(target)
    assert "--list" in make_command(target, "LIST=yes")


@pytest.mark.parametrize("package", ["dev.emulator", *(f"dev.scenarios.{name}" for name in ("slots", "token", "soak"))])
def test_a_python_without_the_packages_names_the_right_one(package: str) -> None:
    checks.missing_packages_are_named(package)


# --------------------------------------------------------------------------------------------- engine and exit codes


@pytest.mark.parametrize("module", SCENARIOS)
def test_a_run_that_cannot_start_leaves_no_report_of_an_earlier_one(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks.an_earlier_report_is_removed(module, tmp_path, monkeypatch)


HOLDS, FAILS = Claim("it was seen", True, "twice"), Claim("it was kept", False, "it was lost")
NOT_SHOWN = Claim("it was undone", None, "no case")


@contextmanager
def no_engine(*_arguments: Any, **_options: Any) -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("judged", "code"), [([HOLDS], 0), ([HOLDS, NOT_SHOWN], 0), ([NOT_SHOWN], 0), ([HOLDS, FAILS, NOT_SHOWN], 1)]
)
def test_only_a_claim_that_fails_fails_the_run(
    judged: list[Claim], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(frame, "engine", no_engine)
    scenario: Scenario[dict[str, Any]] = Scenario(tmp_path, "chart.png", lambda *_: None, lambda _: [])
    with pytest.raises(SystemExit) as ended:
        frame.carry_out(scenario, lambda *_: claims.as_json(judged))
    assert ended.value.code == code
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["ok"] == (code == 0)
    assert ("FAILS it was kept: it was lost" in capsys.readouterr().out) == (code == 1)


def test_an_interrupt_ends_the_engine_and_the_run_with_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> Mapping[str, Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(frame, "engine", no_engine)
    with pytest.raises(SystemExit) as ended:
        frame.carry_out(Scenario(tmp_path, "chart.png", lambda *_: None, lambda _: []), interrupt)
    assert ended.value.code == 130


def test_phases_are_printed_and_timed_by_key() -> None:
    output = io.StringIO()
    run = frame.Run(Console(file=output))
    with run.phase("upload", "upload 3 input files"):
        pass
    assert list(run.seconds) == ["upload"]
    assert re.fullmatch(r"upload 3 input files \.\.\.\nupload 3 input files: \d+\.\d s\n", output.getvalue())


# ---------------------------------------------------------------------------------------------------------- live view

BUSY = Snapshot(9.0, False, 17, 40, {"slots": (2, 3)}, {"waiting": 20}, details="holders: sample-1")


def test_a_run_in_which_nothing_moves_is_stalled_and_states_where_everything_is() -> None:
    stall = StallDetector(after=60)
    stall.check(BUSY)
    stall.check(replace(BUSY, elapsed=68.9))
    with pytest.raises(Stalled, match=r"60 s: slots 2/3  waiting 20  ended 17/40; holders: sample-1"):
        stall.check(replace(BUSY, elapsed=69.0))


def test_any_movement_starts_the_wait_again() -> None:
    stall = StallDetector(after=60)
    stall.check(BUSY)
    stall.check(replace(BUSY, elapsed=60.0, counts={"waiting": 19}))
    stall.check(replace(BUSY, elapsed=119.0, counts={"waiting": 19}))


def test_watching_ends_with_the_read_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dev.emulator.live_view.LINE_INTERVAL", 0)
    done = replace(BUSY, ended=True)
    reads = iter([BUSY, replace(BUSY, done=39), done])
    assert watch(Console(file=io.StringIO()), lambda _: next(reads)) is done


def test_without_a_terminal_a_line_appears_only_when_something_has_changed() -> None:
    output = io.StringIO()
    with LiveView(Console(file=output, width=40)) as view:
        for snapshot in (BUSY, replace(BUSY, elapsed=10.0), replace(BUSY, elapsed=11.0, done=18)):
            view.show(snapshot)
    assert output.getvalue().splitlines() == [
        "   9.0 s  slots 2/3  waiting 20  ended 17/40",
        "  11.0 s  slots 2/3  waiting 20  ended 18/40",
    ]


@pytest.mark.parametrize(("limit", "boxes"), [(3, "■■□"), (500, "2 of 500")])
def test_the_panel_draws_a_gauge_or_numbers_it_if_it_is_too_wide(limit: int, boxes: str) -> None:
    output = io.StringIO()
    Console(file=output, width=100).print(replace(BUSY, gauges={"slots": (2, limit)}).panel("Slotkeeper"))
    for text in (boxes, "waiting 20", "17 of 40 in 9.0 s"):
        assert text in output.getvalue()


def test_a_terminal_is_redrawn() -> None:
    output = io.StringIO()
    with LiveView(Console(file=output, force_terminal=True), "Slotkeeper") as view:
        view.show(BUSY)
    assert "Slotkeeper" in output.getvalue()


def test_the_progress_of_the_chatbot_counts_messages() -> None:
    with ChatService() as service:
        feed = MessageFeed([Message(number) for number in range(1, 6)], 2, 0, service.invalidate)
        out = [feed.next(), feed.next(), feed.next()]
        for message, answered in zip(out, (True, False), strict=False):
            assert message is not None
            feed.end(message, answered=answered)
        snapshot = token_scenario.progress(feed, service, 5, 1.5)
    assert snapshot.status == "answered 1  refused 1  in flight 1  invalidations 0  POST /auth 0  ended 2/5"
    assert not snapshot.ended
    assert not token_scenario.warming_up(49, 50, 2.0).ended
    assert token_scenario.warming_up(50, 50, 2.0).ended


def test_counted_has_a_singular_for_one() -> None:
    assert [counted(number, "row") for number in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]


# ------------------------------------------------------------------------------------------- report, tables and chart

REFUSED = [
    *token_run.records().deliveries[:2],
    token_run.delivery(3, 2.9, 3.0, Try(1004.0, 1004.2, 200), first=503),
    token_run.delivery(4, 2.95, 4.2, answer=None, first=502),
]
TOKEN_ALL_REFUSED = token_run.records(deliveries=REFUSED[3:], log=[], tokens=[], invalidations=[])
SLOTS, SOAK = (slot_scenario, slot_report), (soak_scenario, soak_figures)
TOKEN = (token_scenario, token_figures)
TOKEN_TEXTS = ("1 at first, then 1 for each of 1", "p50 0.70 s, p99 1.00 s, max 1.00 s (2)")
REPORTS: dict[str, tuple[ModuleType, ModuleType, dict[str, Any], tuple[str, ...]]] = {
    "slots": (*SLOTS, slot_reports.slots(whole()), ("3 (limit 3)", "wait of high", "not a number", "not JSON")),
    "slots, nothing started": (*SLOTS, slot_reports.slots(slot_reports.nothing()), ("no request had to wait",)),
    "token": (*TOKEN, token_run.report(token_run.records()), TOKEN_TEXTS),
    "token, refused": (*TOKEN, token_run.report(token_run.records(deliveries=REFUSED)), ("m00004", "502")),
    "token, none": (*TOKEN, token_run.report(TOKEN_ALL_REFUSED), ("no invalidations",)),
    "soak": (*SOAK, slot_reports.soak(whole()), ("woken for nothing", "3 SUCCEEDED, 1 FAILED", "median")),
    "soak, empty": (*SOAK, slot_reports.soak(slot_reports.nothing(), []), ("none",)),
}


@pytest.mark.parametrize(("module", "figures", "report", "texts"), REPORTS.values(), ids=REPORTS)
def test_any_report_is_written_shown_and_drawn(
    module: ModuleType, figures: ModuleType, report: dict[str, Any], texts: tuple[str, ...], tmp_path: Path
) -> None:
    checks.a_report_is_written_shown_and_drawn(module, figures, report, texts, tmp_path)


def test_a_long_request_id_is_whole_in_a_narrow_terminal() -> None:
    name, output = "20120101T000000-0001-2012-01" * 2, io.StringIO()
    Console(file=output, width=80).print(*frame.list_table("Kept", ("request", "reason"), [(name, "no number " * 9)]))
    cells = [line.split("│")[1].strip() for line in output.getvalue().splitlines() if line.count("│") == 3]
    assert name in "".join(cells)


def test_a_claim_that_is_not_shown_is_not_reported_to_hold() -> None:
    output = io.StringIO()
    Console(file=output).print(claims.table(claims.as_json([HOLDS, FAILS, NOT_SHOWN])))
    verdicts = [line.strip("│ ").split("│")[0].strip() for line in output.getvalue().splitlines()[2:5]]
    assert verdicts == ["holds", "FAILS", "not shown"]


@pytest.mark.parametrize(("ending", "code"), [("succeed", 0), ("fail", 1)])
def test_the_soak_s_job_ends_as_its_argument_states(ending: str, code: int) -> None:
    arguments = ["--seconds", "0.01", "--ending", ending, "--slotkeeper-execution", "p-1"]
    ended = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == code
