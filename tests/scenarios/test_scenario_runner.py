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
from click.testing import CliRunner
from rich.console import Console

from dev.emulator.aws import EmbeddedAws, EngineError
from dev.emulator.environment import ROOT
from dev.emulator.live_view import LiveView, Snapshot, StallDetector, Stalled
from dev.scenarios.runner import claims
from dev.scenarios.runner import scenario as frame
from dev.scenarios.runner.claims import Claim
from dev.scenarios.runner.scenario import Scenario
from dev.scenarios.slots import slot_report, slot_scenario
from dev.scenarios.soak import soak_figures, soak_scenario
from dev.scenarios.soak.soak_stack import SCRIPT
from dev.scenarios.token import token_figures, token_scenario
from dev.scenarios.worker import worker_figures, worker_scenario
from tests.cli.work_histories import whole
from tests.scenarios import slot_reports, token_run, worker_run

SCENARIOS = [slot_scenario, token_scenario, worker_scenario, soak_scenario]
TARGETS = ("run", "run-chatbot", "run-worker", "soak")


def make_command(target: str, *given: str, **environment: str) -> str:
    """The command that `make` would run."""
    answer = subprocess.run(
        ["make", "--dry-run", target, *given],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin"} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return " ".join(answer.stdout.replace("\\\n", "").split())


# ------------------------------------------------------------------------------------------------------- command line


@pytest.mark.parametrize(
    ("scenario", "variables", "wrong"),
    [
        (
            slot_scenario,
            "REQUESTS=1..2000 LIMIT=1..500 FAIL=0..1 PRIORITIES=no|yes",
            ["--limit 0", "--fail nan", "--priorities yes --requests 11", "--priorities yes --limit 2"],
        ),
        (
            token_scenario,
            "MESSAGES=1..2000 SENDERS=1..100 INVALIDATIONS=0..50 AUTH_LATENCY=0..3",
            ["--senders 101", "--auth-latency nan", "--messages 5 --invalidations 5"],
        ),
        (
            worker_scenario,
            "REQUESTS=1..1000 SEED=any whole number SCALE=0.02..1 WORKERS=2..10 OUTAGE=no|yes",
            ["--scale nan", "--workers 1", "--outage 5"],
        ),
        (
            soak_scenario,
            "MINUTES=0.1..120 SEED=any whole number LIMIT=1..20",
            ["--minutes nan", "--seed one", "--no"],
        ),
    ],
)
def test_a_wrong_option_is_refused_with_the_variables_of_make(
    scenario: ModuleType, variables: str, wrong: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "EmbeddedAws", None)  # an option that slips through starts nothing
    for options in wrong:
        answer = CliRunner().invoke(scenario.main, options.split())
        assert answer.exit_code == 2
        assert f"from make: {variables}" in answer.output


@pytest.mark.parametrize(("target", "scenario"), list(zip(TARGETS, SCENARIOS, strict=True)))
def test_the_makefile_has_the_defaults_of_the_command(target: str, scenario: ModuleType) -> None:
    defaults = {option.name: option.default for option in scenario.main.params}
    shown = (f"{each:g}" if isinstance(each, float) else str(each) for each in defaults.values())
    options = (f'--{name.replace("_", "-")}="{value}"' for name, value in zip(defaults, shown, strict=True))
    assert re.search(r"-m dev\.scenarios\.\w+ (.*)", make_command(target))[1] == " ".join(options)  # type: ignore[index]


@pytest.mark.parametrize(
    ("target", "given", "environment", "option"),
    [
        ("run", ["PRIORITIES=yes"], {}, '--limit="4" --fail="0" --priorities="yes"'),
        ("run", ["PRIORITIES=yes"], {"LIMIT": "9"}, '--limit="9"'),
        ("run-worker", ["REQUESTS=40"], {}, '--requests="40"'),
    ],
)
def test_a_default_of_one_target_gives_way_to_a_given_value(
    target: str, given: list[str], environment: dict[str, str], option: str
) -> None:
    assert option in make_command(target, *given, **environment)


@pytest.mark.parametrize("target", ["bench", "smoke"])
def test_make_lists_the_parts_only_on_request(target: str) -> None:
    assert "--list" not in make_command(target)
    assert "--list" in make_command(target, "LIST=yes")


@pytest.mark.parametrize("package", ["dev.emulator", "dev.scenarios.slots"])
def test_a_python_without_the_packages_names_the_right_one(package: str) -> None:
    command = [sys.executable, "-S", "-m", package, "--help"]  # -S: without installed packages
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "is not installed for" in answer.stderr
    assert f"build/venv/bin/python -m {package}\n" in answer.stderr
    assert "Traceback" not in answer.stderr


# --------------------------------------------------------------------------------------------- engine and exit codes


@pytest.mark.parametrize("module", SCENARIOS)
def test_a_run_that_cannot_start_leaves_no_report_of_an_earlier_one(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_state_dir: Path, **_options: Any) -> None:
        raise EngineError("no engine today")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(EmbeddedAws, "start", refuse)
    folder = module.SCENARIO.folder
    folder.mkdir(parents=True)
    for name in ("report.json", module.SCENARIO.chart):
        (folder / name).touch()
    result = CliRunner().invoke(module.main, [])
    assert result.exit_code == 1
    assert "no engine today" in result.output
    assert [path.name for path in folder.iterdir()] == ["lock"]


HOLDS, FAILS = Claim("it was seen", True, "twice"), Claim("it was kept", False, "it was lost")
NOT_SHOWN = Claim("it was undone", None, "no case")


@contextmanager
def no_engine(*_arguments: Any, **_options: Any) -> Iterator[None]:
    yield


@pytest.mark.parametrize(("judged", "code"), [([HOLDS, NOT_SHOWN], 0), ([HOLDS, FAILS, NOT_SHOWN], 1)])
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
    output = capsys.readouterr().out
    assert ("FAILS it was kept: it was lost" in output) == (code == 1)
    verdicts = [line.split("│")[1].strip() for line in output.splitlines() if line.startswith("│")]
    assert verdicts == [{True: "holds", False: "FAILS", None: "not shown"}[each.ok] for each in judged]


def test_an_interrupt_ends_the_engine_and_the_run_with_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> Mapping[str, Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(frame, "engine", no_engine)
    with pytest.raises(SystemExit) as ended:
        frame.carry_out(Scenario(tmp_path, "chart.png", lambda *_: None, lambda _: []), interrupt)
    assert ended.value.code == 130


# ---------------------------------------------------------------------------------------------------------- live view

BUSY = Snapshot(9.0, False, 17, 40, {"slots": (2, 3)}, {"waiting": 20}, details="holders: sample-1")


def test_a_run_in_which_nothing_moves_is_stalled_and_states_where_everything_is() -> None:
    stall = StallDetector(after=60)
    stall.check(replace(BUSY, elapsed=8.0, counts={"waiting": 21}))
    stall.check(BUSY)  # a movement starts the wait again
    stall.check(replace(BUSY, elapsed=68.9))
    with pytest.raises(Stalled, match=r"60 s: slots 2/3  waiting 20  ended 17/40; holders: sample-1"):
        stall.check(replace(BUSY, elapsed=69.0))


def test_without_a_terminal_a_line_appears_only_when_something_has_changed() -> None:
    output = io.StringIO()
    with LiveView(Console(file=output, width=40)) as view:
        for snapshot in (BUSY, replace(BUSY, elapsed=10.0), replace(BUSY, elapsed=11.0, done=18)):
            view.show(snapshot)
    assert output.getvalue().splitlines() == [
        "   9.0 s  slots 2/3  waiting 20  ended 17/40",
        "  11.0 s  slots 2/3  waiting 20  ended 18/40",
    ]


# ------------------------------------------------------------------------------------------- report, tables and chart

REFUSED = [*token_run.records().deliveries[:3], token_run.delivery(4, 2.95, 4.2, status=502, answer=None)]
TOKEN_ALL_REFUSED = token_run.records(deliveries=REFUSED[3:], log=[], tokens=[])
SLOTS, SOAK = (slot_scenario, slot_report), (soak_scenario, soak_figures)
TOKEN = (token_scenario, token_figures)
WORKER = (worker_scenario, worker_figures)
WORKER_TEXTS = ("3 of 5", "1 in 1, 1 in 2", "too slow, given up: 1")
WORKER_LOST = worker_run.records(calls=[worker_run.call("a/2", 1, 0.6, None, None)], rows=[], dead=[], manifests=[])
OUTAGE_TEXTS = (
    "from 10.0 to 30.0 s: 7 calls, 1 attempt used up",
    "first call after 3.3 s, first success after 4.5 s, last request after 21.7 s",
)
TOKEN_TEXTS = ("1 at first, then 1 for each of 1", "p50 0.70 s, p99 1.00 s, max 1.00 s (2)")
REPORTS: dict[str, tuple[ModuleType, ModuleType, dict[str, Any], tuple[str, ...]]] = {
    "slots": (*SLOTS, slot_reports.slots(whole()), ("3 (limit 3)", "wait of high", "not a number", "not JSON")),
    "slots, nothing started": (*SLOTS, slot_reports.slots(slot_reports.nothing()), ("no request had to wait",)),
    "token": (*TOKEN, token_run.report(token_run.records()), TOKEN_TEXTS),
    "token, refused": (*TOKEN, token_run.report(token_run.records(deliveries=REFUSED)), ("3 of 4", "502")),
    "token, none": (*TOKEN, token_run.report(TOKEN_ALL_REFUSED), ("no invalidations",)),
    "worker": (*WORKER, worker_run.report(worker_run.records()), WORKER_TEXTS),
    "worker, everything lost": (*WORKER, worker_run.report(WORKER_LOST), ("0 of 5", "2 nowhere")),
    "worker, outage": (*WORKER, worker_run.report(worker_run.outage_records()), OUTAGE_TEXTS),
    "soak": (*SOAK, slot_reports.soak(whole()), ("woken for nothing", "3 SUCCEEDED, 1 FAILED", "median")),
    "soak, empty": (*SOAK, slot_reports.soak(slot_reports.nothing(), []), ("none",)),
}


@pytest.mark.parametrize(("module", "figures", "report", "texts"), REPORTS.values(), ids=REPORTS)
def test_any_report_is_written_shown_and_drawn(
    module: ModuleType, figures: ModuleType, report: dict[str, Any], texts: tuple[str, ...], tmp_path: Path
) -> None:
    output = io.StringIO()
    scenario = replace(module.SCENARIO, folder=tmp_path)
    frame.write(scenario, report, Console(file=output, width=220))
    assert json.loads((tmp_path / "report.json").read_text()).keys() == report.keys()
    assert (tmp_path / scenario.chart).read_bytes().startswith(b"\x89PNG")
    for text in (*texts, *(check["name"] for check in report["checks"])):
        assert text in output.getvalue()
    explained = set(re.findall(r"`(\w+)`", f"{frame.__doc__}{figures.__doc__}"))
    assert set(report) <= explained


def test_a_long_request_id_is_whole_in_a_narrow_terminal() -> None:
    name, output = "20120101T000000-0001-2012-01" * 2, io.StringIO()
    Console(file=output, width=80).print(*frame.list_table("Kept", ("request", "reason"), [(name, "no number " * 9)]))
    cells = [line.split("│")[1].strip() for line in output.getvalue().splitlines() if line.count("│") == 3]
    assert name in "".join(cells)


@pytest.mark.parametrize(("ending", "code"), [("succeed", 0), ("fail", 1)])
def test_the_soak_s_job_ends_as_its_argument_states(ending: str, code: int) -> None:
    arguments = ["--seconds", "0.01", "--ending", ending, "--slotkeeper-execution", "p-1"]
    ended = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == code
