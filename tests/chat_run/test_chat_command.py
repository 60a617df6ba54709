"""The command as far as it goes without an embedded AWS, and what it says meanwhile."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from click.testing import CliRunner
from rich.console import Console

from dev.emulator.chat_service import ChatService
from dev.emulator.environment import ROOT
from dev.scenarios.runner import command as frame
from dev.scenarios.runner.viewing import for_console
from dev.scenarios.token import main as command
from dev.scenarios.token import summary, view
from dev.scenarios.token.course import Course
from dev.scenarios.token.messages import Message
from tests.chat_run.notes import ORIGIN, delivery, records, report

BUSY = view.Snapshot(elapsed=9.0, messages=200, answered=60, refused=0, on_the_way=50, invalidations=2, auths=3)


@pytest.mark.parametrize(
    "wrong",
    [
        ["--messages", "0"],
        ["--messages", "2001"],
        ["--senders", "101"],
        ["--invalidations", "51"],
        ["--invalidations", "-1"],
        ["--auth-latency", "nan"],
        ["--auth-latency", "4"],
        ["--messages", "5", "--invalidations", "5"],
        ["--senders"],
        ["--no"],
    ],
)
def test_a_wrong_option_is_answered_with_the_variables_of_make(
    wrong: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "EmbeddedAws", None)  # an option that slips through starts nothing here
    result = CliRunner().invoke(command.main, wrong)
    assert result.exit_code == 2
    assert "from make: MESSAGES=1..2000 SENDERS=1..100 INVALIDATIONS=0..50 AUTH_LATENCY=0..3" in result.output


def test_the_makefile_s_defaults_are_the_command_s() -> None:
    makefile = (ROOT / "Makefile").read_text()
    defaults = {option.name: option.default for option in command.main.params}
    for name, value in defaults.items():
        assert re.search(rf"^{str(name).upper()} *\?= {value}$", makefile, re.MULTILINE)


def test_a_course_is_seen_from_outside() -> None:
    with ChatService() as service:
        course = Course([Message(number) for number in range(1, 6)], 2, 0, service.invalidate)
        out = [course.next(), course.next(), course.next()]
        for message, answered in zip(out, (True, False), strict=False):
            assert message is not None
            course.end(message, answered=answered)
        seen = view.look(course, service, 5, 1.5)
    assert seen == view.Snapshot(elapsed=1.5, messages=5, answered=1, refused=1, on_the_way=1, invalidations=0, auths=0)
    assert not seen.over
    assert replace(seen, answered=4).over


def test_without_a_terminal_a_line_appears_only_when_something_has_changed() -> None:
    text = io.StringIO()
    with for_console(Console(file=text, width=40), view.panel, view.plain_line) as shown:
        for snapshot in (BUSY, replace(BUSY, elapsed=10.0), replace(BUSY, elapsed=11.0, refused=1)):
            shown.show(snapshot)
    assert text.getvalue().splitlines() == [
        "   9.0 s  answered 60/200  on the way 50  invalidations 2  POST /auth 3",
        "  11.0 s  answered 60/200  on the way 50  invalidations 2  POST /auth 3  refused 1",
    ]


def drawn(thing: object) -> str:
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(thing)
    return console.export_text()


def test_the_panels_show_how_far_it_has_come() -> None:
    text = drawn(view.panel(BUSY))
    assert "60 of 200 in 9.0 s" in text
    assert "invalidations 2" in text
    assert "POST /auth 3" in text
    assert "3 of 50 in 2.0 s" in drawn(view.starting_panel(view.Starting(2.0, 50, 3)))


def test_who_waits_in_vain_is_told_what_stands_where() -> None:
    assert BUSY.said() == "60 of 200 answered, 0 refused, 50 on the way, 2 invalidations made, 3 POST /auth seen"
    assert view.Starting(2.0, 50, 3).said() == "3 of 50 containers of the chatbot have started"
    assert view.starting_line(view.Starting(2.0, 50, 3)) == "   2.0 s  containers 3/50"


def test_the_figures_stand_on_one_line_each_of_a_narrow_terminal() -> None:
    made = report(records())
    made["token_waits"] = made["latency"]["all"] = {"count": 1997, "p50": 12.34, "p99": 12.34, "max": 12.34}
    made["auths"]["per_invalidation"] = [1] * 5
    text = io.StringIO()
    summary.show(Console(file=text, width=80), made)
    assert "p50 12.34 s, p99 12.34 s, max 12.34 s (1997)" in text.getvalue()
    assert "1 at first, then 1 for each of 5 invalidations" in text.getvalue()
    assert "latency, no token yet" in text.getvalue()
    assert "holds" in text.getvalue()


def test_a_refused_message_is_listed_with_its_tries() -> None:
    lost = delivery(4, 2.95, 4.2, answer=None, first=502)
    text = io.StringIO()
    summary.show(Console(file=text, width=80), report(records(deliveries=[*records().deliveries[:3], lost])))
    assert "m00004" in text.getvalue()
    assert "502" in text.getvalue()
    assert str(ORIGIN) not in text.getvalue()
