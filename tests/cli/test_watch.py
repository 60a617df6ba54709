"""`slotkeeper status --watch` on a terminal and into a pipe, with data that change."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slotkeeper_cli import refreshes, stack_connection
from slotkeeper_cli.commands import status
from slotkeeper_cli.formatting import local_time
from tests.cli.operator_account import Operator
from tests.cli.terminal import Gate, terminal
from tests.support.module_time import replace_time

START = 1_790_000_000.0
QUICK = ("status", "--watch", "0.01")  # each refresh waits for the test
ONCE = ("status", "--watch", "9999")
SHOWS_SCREEN, HIDES_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"
SHOWS_CURSOR = b"\x1b[?25h"


def nothing() -> None:
    """Change nothing between two refreshes."""


def fails(error: BaseException) -> Callable[[], None]:
    def step() -> None:
        raise error

    return step


THROTTLED = fails(ClientError({"Error": {"Code": "Throttling", "Message": "Rate exceeded"}}, "DescribeStacks"))
EXPIRED = fails(ClientError({"Error": {"Code": "ExpiredTokenException", "Message": "it has expired"}}, "GetItem"))


class Refreshes:
    """What happens in the fork before each refresh, the first at START and each a minute after the one before.

    Each refresh waits until the test lets it, so that the test sees every frame.
    """

    def __init__(self, *steps: Callable[[], Any]) -> None:
        self._gate, self._steps, self._done = Gate(), steps, 0

    def __call__(self) -> None:
        """Replace the command's functions, in the fork."""
        patch, read = pytest.MonkeyPatch(), status.read_status

        def read_after_step(*arguments: Any) -> Any:
            self._gate.wait()
            self._steps[self._done - 1]()
            return read(*arguments)

        def now() -> float:
            return START + 60 * (self._done - 1)

        def next_refresh() -> float:
            self._done += 1
            return now()

        patch.setattr(status, "read_status", read_after_step)
        replace_time(patch, status, time=now)
        replace_time(patch, refreshes, time=next_refresh)

    def allow(self) -> None:
        """Let the next refresh begin."""
        self._gate.open()


def at(refresh: int) -> str:
    """The time of a refresh as the command prints it; the first has the number 0."""
    return local_time(START + 60 * refresh)


@pytest.mark.parametrize("columns", [80, 200])
def test_each_refresh_replaces_what_the_terminal_shows(operator: Operator, columns: int) -> None:
    refresh = Refreshes(nothing, lambda: operator.hold("a"), lambda: operator.wait("b"))
    last = "RequestDeadLetterQueue"  # a terminal may receive a frame in parts
    with terminal(*QUICK, columns=columns, before=refresh) as shown:
        refresh.allow()
        first = shown.shows(f"Read at {at(0)}", "sample  0 of 1 slots in use", last)
        refresh.allow()
        running = "  a  RUNNING for 1 min, execution RUNNING"
        second = shown.shows(f"Read at {at(1)}", "sample  1 of 1 slots in use", running, last)
        refresh.allow()
        third = shown.shows(f"Read at {at(2)}", "next: b, waiting for 1 min", last)

    for frame in (first, second, third):
        assert frame.count("in us-east-1") == frame.count("sample ") == frame.count(last) == 1
        # In reading order, from the top.
        assert frame.splitlines()[0].startswith("Read at ")
        assert frame.index("in us-east-1") < frame.index("sample ") < frame.index(last)
    assert at(0) not in second + third


def test_a_failed_refresh_keeps_the_data_under_their_own_time_with_the_error(operator: Operator) -> None:
    refresh = Refreshes(nothing, THROTTLED, EXPIRED, lambda: operator.hold("a"))
    with terminal(*QUICK, columns=200, before=refresh) as shown:
        refresh.allow()
        shown.shows(f"Read at {at(0)}")
        refresh.allow()
        throttled = shown.shows("DescribeStacks failed with Throttling: Rate exceeded. The command tries again every")
        refresh.allow()
        expired = shown.shows("GetItem failed with ExpiredTokenException")
        for frame in (throttled, expired):
            assert f"Not refreshed since {at(0)}" in frame
            assert f"slotkeeper in us-east-1, {at(0)}" in frame
            assert "0 of 1 slots in use" in frame
            assert at(1) not in frame
        refresh.allow()
        recovered = shown.shows(f"Read at {at(3)}", "1 of 1 slots in use")

    assert "Not refreshed" not in recovered


def test_after_a_failure_the_configuration_is_read_again(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator whose credentials have expired signs in, in another terminal."""
    sessions: list[Any] = []
    steps = iter([nothing, nothing, EXPIRED, nothing, fails(KeyboardInterrupt())])
    connect, read = stack_connection.StackConnection, status.read_status

    def connect_and_note(*arguments: Any) -> Any:
        sessions.append(arguments)
        return connect(*arguments)

    def read_after_step(*arguments: Any) -> Any:
        next(steps)()
        return read(*arguments)

    monkeypatch.setattr(stack_connection, "StackConnection", connect_and_note)
    monkeypatch.setattr(status, "read_status", read_after_step)

    ended = operator.run(*QUICK)

    assert (ended.exit_code, len(sessions)) == (130, 2)
    assert ended.stdout.count("--- read at ") == 3


def test_a_first_read_that_fails_ends_the_command(operator: Operator) -> None:
    with terminal("status", "--watch", "1", "--stack", "nowhere") as shown:
        assert shown.ends() == 4
        assert "there is no stack 'nowhere'" in shown.text()
    assert SHOWS_SCREEN not in shown.written


def test_the_last_line_states_how_much_is_not_on_the_screen(operator: Operator) -> None:
    for number in range(20):
        operator.processes.create(f"process-{number:02}", 1, "sample-job")
    with terminal(*ONCE, columns=80, lines=24) as shown:
        cut = shown.shows("more lines: enlarge the window")
        lines = cut.splitlines()
        last_shown, hidden = lines[-2], int(lines[-1].split()[1])
        assert (len(lines), lines[0][:8]) == (24, "Read at ")

        shown.resize(120, 24 + hidden - 2)
        still_cut = shown.shows("and 2 more lines: enlarge the window")
        assert last_shown in still_cut

        shown.resize(200, 24 + hidden)
        whole = shown.shows("RetryScheduleDeadLetterQueue")
        assert "more line" not in whole
        assert whole.count("Read at ") == 1


def test_long_lines_are_wrapped_and_counted(operator: Operator) -> None:
    operator.hold("r" * 100)
    with terminal(*ONCE, columns=40, lines=12) as shown:
        frame = shown.shows("more lines: enlarge the window")
    assert "r" * 38 in frame
    assert len(frame.splitlines()) == 12


@pytest.mark.parametrize("ends", [lambda shown: shown.type("\x03"), lambda shown: shown.signal(signal.SIGTERM)])
def test_ctrl_c_ends_it_and_restores_the_terminal(operator: Operator, ends: Callable[[Any], None]) -> None:
    with terminal(*ONCE) as shown:
        shown.shows("sample  0 of 1 slots in use")
        ends(shown)
        assert shown.ends() in (130, 143)
        assert "Traceback" not in shown.text()
    assert shown.written.index(SHOWS_SCREEN) < shown.written.index(HIDES_SCREEN) < shown.written.rindex(SHOWS_CURSOR)


def test_into_a_pipe_each_refresh_is_printed_when_it_was_read(operator: Operator) -> None:
    refresh = Refreshes(nothing, THROTTLED, lambda: operator.hold("a"))
    with terminal(*QUICK, piped=True, before=refresh) as shown:
        refresh.allow()
        shown.prints(f"--- read at {at(0)} ---\n", "0 of 1 slots in use", "RetryScheduleDeadLetterQueue")
        refresh.allow()
        shown.shows(f"Not refreshed since {at(0)}", "Rate exceeded")
        refresh.allow()
        printed = shown.prints(f"\n\n--- read at {at(2)} ---\n", "1 of 1 slots in use")

    assert "\x1b" not in printed
    assert "Rate exceeded" not in printed
    assert at(1) not in printed
