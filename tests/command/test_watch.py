"""`slotkeeper status --watch` on a terminal and into a pipe, with data that change."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slotkeeper_cli import refreshes, stack_connection
from slotkeeper_cli import status as answer
from slotkeeper_cli.commands import status
from slotkeeper_cli.formatting import local_time
from tests.command.account_contents import add_malformed
from tests.command.operator_account import Operator, StubbedCalls
from tests.command.terminal import Gate, terminal
from tests.module_time import replace_time

START = 1_790_000_000.0
QUICK = ("status", "--watch", "0.01")  # each refresh waits for the test
ONCE = ("status", "--watch", "9999")
SHOWS_SCREEN, HIDES_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"
SHOWS_CURSOR, HIDES_CURSOR = b"\x1b[?25h", b"\x1b[?25l"


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
        replace_time(patch, answer, time=now)
        replace_time(patch, refreshes, time=next_refresh)

    def allow(self) -> None:
        """Let the next refresh begin."""
        self._gate.open()


def before_each_read(patch: pytest.MonkeyPatch, *steps: Callable[[], Any]) -> None:
    """Take a step before each read of a refresh."""
    read, following = status.read_status, iter(steps)

    def read_after_step(*arguments: Any) -> Any:
        next(following)()
        return read(*arguments)

    patch.setattr(status, "read_status", read_after_step)


def at(refresh: int) -> str:
    """The time of a refresh as the command prints it; the first has the number 0."""
    return local_time(START + 60 * refresh)


@pytest.mark.parametrize("columns", [80, 200])
def test_each_refresh_replaces_what_the_terminal_shows(operator: Operator, columns: int) -> None:
    refresh = Refreshes(nothing, lambda: operator.hold("a"), lambda: operator.wait("b"))
    last = "All queues are empty."  # a terminal may receive a frame in parts
    with terminal(*QUICK, columns=columns, before=refresh) as shown:
        refresh.allow()
        first = shown.shows(f"Read at {at(0)}", "1 idle: sample", last)
        refresh.allow()
        second = shown.shows(f"Read at {at(1)}", "[##########]  1 of 1", last)
        refresh.allow()
        third = shown.shows(f"Read at {at(2)}", "next: b, waiting for 1 min", last)

    for frame in (first, second, third):
        assert frame.count("in us-east-1") == frame.count("sample") == frame.count(last) == 1
        # In reading order, from the top.
        assert frame.splitlines()[0].startswith("Read at ")
        assert frame.index("in us-east-1") < frame.index("sample") < frame.index(last)
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
            assert "1 idle: sample" in frame
            assert at(1) not in frame
        refresh.allow()
        recovered = shown.shows(f"Read at {at(3)}", "1 of 1")

    assert "Not refreshed" not in recovered


def test_after_a_failure_the_configuration_is_read_again(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator whose credentials have expired signs in, in another terminal."""
    sessions: list[Any] = []
    connect = stack_connection.StackConnection

    def connect_and_note(*arguments: Any) -> Any:
        sessions.append(arguments)
        return connect(*arguments)

    monkeypatch.setattr(stack_connection, "StackConnection", connect_and_note)
    before_each_read(monkeypatch, nothing, nothing, EXPIRED, nothing, fails(KeyboardInterrupt()))

    ended = operator.run(*QUICK)

    assert (ended.exit_code, len(sessions)) == (130, 2)
    assert ended.stdout.count("--- read at ") == 3


def test_the_failures_of_a_day_are_not_read_by_each_refresh(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a read costs a call for each megabyte of all failures."""
    scanned: Counter[str] = Counter()

    def note(asked: dict[str, Any]) -> None:
        scanned[asked.get("IndexName", "")] += 1

    before_each_read(monkeypatch, nothing, nothing, nothing, fails(KeyboardInterrupt()))
    with StubbedCalls("dynamodb", {"Scan": note}):
        operator.run(*QUICK)
    assert (scanned["failed"], scanned["place"] >= 3) == (1, True)


def test_a_first_read_that_fails_ends_the_command(operator: Operator) -> None:
    with terminal("status", "--watch", "1", "--stack", "nowhere") as shown:
        assert shown.ends() == 4
        assert "there is no stack 'nowhere'" in shown.text()
    assert SHOWS_SCREEN not in shown.written


def test_of_a_thousand_processes_the_busy_ones_are_shown_and_the_rest_is_counted(operator: Operator) -> None:
    for number in range(1000):
        operator.processes.create(f"p-{number:045}", 1, "sample-job")
    for number in range(40):
        operator.hold("r" * 80, f"p-{number:045}")
        operator.wait(f"{number}-" + "q" * 80, f"p-{number:045}")
    for number in range(20):
        add_malformed(operator, f"odd-{number}")
    with terminal(*ONCE, columns=100) as shown:
        for columns, lines in ((80, 24), (60, 16)):
            shown.resize(columns, lines)
            rows = shown.shows("All queues are empty.").splitlines()

            assert (len(rows) <= lines, rows[0][:8], max(map(len, rows)) <= columns) == (True, "Read at ", True)
            assert any(row.startswith("bad   the item of process odd-0 is malformed") for row in rows)
            assert any(row.endswith("more: slotkeeper status") for row in rows)
            assert "961 idle: p-0000" in rows[-2]
            busy = sum("[##########]  1 of 1" in row for row in rows)
            assert busy >= 1
            assert f"and {40 - busy} more: slotkeeper status NAME" in rows

        shown.resize(200, 400)
        whole = shown.shows("All queues are empty.")
        assert " more: " not in whole
        assert (whole.count("[##########]"), whole.count("Read at ")) == (40, 1)


def test_of_many_holders_the_first_are_shown_and_the_rest_is_counted(operator: Operator) -> None:
    operator.processes.set_limit("sample", 40)
    for number in range(40):
        operator.lease(f"lease-{number:02}", 9_999_999_999)
    with terminal("status", "sample", "--watch", "9999") as shown:
        rows = shown.shows("All queues are empty.").splitlines()
    assert len(rows) <= 24
    assert any(row.startswith("sample  [##########]  40 of 40 slots in use") for row in rows)
    shown_holders = sum(row.startswith("lease-") for row in rows)
    assert f"and {40 - shown_holders} more: slotkeeper status sample" in rows


@pytest.mark.parametrize("ends", [lambda shown: shown.type("\x03"), lambda shown: shown.signal(signal.SIGTERM)])
def test_ctrl_c_ends_it_and_restores_the_terminal(operator: Operator, ends: Callable[[Any], None]) -> None:
    with terminal(*ONCE) as shown:
        shown.shows("1 idle: sample")
        ends(shown)
        assert shown.ends() in (130, 143)
        assert "Traceback" not in shown.text()
    assert shown.written.index(SHOWS_SCREEN) < shown.written.index(HIDES_SCREEN)
    assert shown.written.rindex(HIDES_CURSOR) < shown.written.rindex(SHOWS_CURSOR)


def test_into_a_pipe_each_refresh_is_printed_when_it_was_read(operator: Operator) -> None:
    refresh = Refreshes(nothing, THROTTLED, lambda: operator.hold("a"))
    with terminal(*QUICK, piped=True, before=refresh) as shown:
        refresh.allow()
        shown.prints(f"--- read at {at(0)} ---\n", "1 idle: sample", "All queues are empty.")
        refresh.allow()
        shown.shows(f"Not refreshed since {at(0)}", "Rate exceeded")
        refresh.allow()
        printed = shown.prints(f"\n\n--- read at {at(2)} ---\n", "1 of 1")

    assert "\x1b" not in printed
    assert "Rate exceeded" not in printed
    assert at(1) not in printed
