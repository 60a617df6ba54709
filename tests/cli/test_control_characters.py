"""Control characters of a sender, in an error or a name, reach no e-mail and no page unescaped.

`test_task_tokens.py` has them in the ids of requests, with which it calls every command.
"""

from __future__ import annotations

import json

import pytest

from slotkeeper.printable import printable
from slotkeeper.retry.failures.analysis import FailureAnalysis
from slotkeeper.retry.failures.report import DeadLetterNote, Period, mail
from slotkeeper_cli.report_html import page
from tests.cli.operator_account import Operator
from tests.cli.queue_contents import HOSTILE, fail, is_harmless


def test_an_errors_own_lines_are_shown_indented(operator: Operator) -> None:
    fail(operator, "a", cause="first\nsecond\u202e")
    assert "  reason: first\n    second\\u202e\n" in operator.run("dlq", "show", "failed").stdout


def test_the_report_of_failures_contains_no_control_character() -> None:
    notes = [DeadLetterNote(f"id{HOSTILE}", f"Code{HOSTILE}", f"reason{HOSTILE}", 99.0, attempted=False)]
    found = FailureAnalysis(Period(0, 100), notes).report([])
    assert is_harmless(mail(found, "slots").text)
    assert is_harmless(page(found, "slots"))


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
