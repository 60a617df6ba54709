"""Control characters of a sender, in a request's id, an error or a body, reach no terminal and no e-mail unescaped."""

from __future__ import annotations

import json

import pytest

from slotkeeper.printable import printable
from slotkeeper.retry.failures.analysis import FailureAnalysis
from slotkeeper.retry.failures.report import DeadLetterNote, Period, mail
from slotkeeper_cli.report_html import page
from tests.cli.operator_account import Operator
from tests.cli.queue_contents import fail, give_up, send_dead_letter

# Sets the window's title, adds a line, hides what follows (CSI in one character), and reverses its direction.
HOSTILE = "\x1b]0;owned\x07\nFORGED\u009b8m\u202e"
READS = [
    ("status",),
    ("process", "list"),
    *(("request", "show", f"{name}{HOSTILE}") for name in ("holds", "waits", "failed", "expired", "work", "never")),
    ("dlq", "list"),
    *(("dlq", "show", queue) for queue in ("request", "failed", "work")),
    *(("dlq", "redrive", queue, "--all", "--dry-run") for queue in ("request", "failed", "work")),
    ("process", "set-limit", "sample", "2"),
    ("retry", "list"),
    ("retry", "report"),
    ("holder", "release", f"holds{HOSTILE}"),
    ("request", "cancel", f"waits{HOSTILE}", "--yes"),
    ("dlq", "redrive", "failed", "--all", "--yes"),
]


def _is_harmless(printed: str) -> bool:
    lines = [line.strip() for line in printed.split("\n")]
    return all(line.isprintable() and not line.startswith("FORGED") for line in lines)


@pytest.fixture
def hostile(operator: Operator) -> Operator:
    operator.hold(f"holds{HOSTILE}")
    operator.wait(f"waits{HOSTILE}")
    send_dead_letter(operator, json.dumps({"process": "sample", "request_id": f"expired{HOSTILE}"}), "Expired", "m-2")
    fail(operator, f"failed{HOSTILE}")
    give_up(operator, f"work{HOSTILE}")
    return operator


@pytest.mark.parametrize("as_json", [False, True])
def test_no_command_prints_a_senders_control_characters(hostile: Operator, as_json: bool) -> None:
    shown = set()
    for command in READS:
        ended = hostile.run(*command, *["--json"] * as_json)
        assert _is_harmless(ended.stdout + ended.stderr), (command, ended.stdout, ended.stderr)
        shown |= {name for name in ("holds", "waits", "failed", "expired", "work") if f"{name}\\u001b" in ended.stdout}
    assert shown == {"holds", "waits", "failed", "expired", "work"}


def test_an_errors_own_lines_are_shown_indented(operator: Operator) -> None:
    fail(operator, "a", cause="first\nsecond\u202e")
    assert "  reason: first\n    second\\u202e\n" in operator.run("dlq", "show", "failed").stdout


def test_the_report_of_failures_contains_no_control_character() -> None:
    notes = [DeadLetterNote(f"id{HOSTILE}", f"Code{HOSTILE}", f"reason{HOSTILE}", 99.0, attempted=False)]
    found = FailureAnalysis(Period(0, 100), notes).report([])
    assert _is_harmless(mail(found, "slots").text)
    assert _is_harmless(page(found, "slots"))


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("Größe 7 😀", "Größe 7 😀"),
        ("a\tb\n", "a\\tb\\n"),
        ("\x1b[31m", "\\u001b[31m"),
        ("\U000e0041", "\\udb40\\udc41"),
    ],
)
def test_a_character_that_cannot_be_printed_is_shown_as_in_json(given: str, shown: str) -> None:
    assert printable(given) == shown
    assert json.loads(f'"{shown}"') == given
