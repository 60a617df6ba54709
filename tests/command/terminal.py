"""The operator command on a pseudo-terminal, in a fork of the test: it has the test's account."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pyte

from slotkeeper_cli import app as command
from tests.waiting import wait_until


class Gate:
    """Lets the fork continue: each `wait` of the fork takes one `open` of the test."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def wait(self) -> None:
        os.read(self._read, 1)

    def open(self) -> None:
        os.write(self._write, b"x")


class Terminal:
    """A terminal, as an operator sees it and types.

    Args:
        fork: process id of the command.
        device: file descriptor of the terminal's other side.
        output: that of the command's stdout if it is a pipe.
    """

    def __init__(self, fork: int, device: int, columns: int, lines: int, output: int | None) -> None:
        self._fork, self._device, self._output = fork, device, output
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.written = b""  # all that the command has written on the terminal
        self.piped = ""

    def text(self) -> str:
        """The lines of the screen, without spaces at their ends."""
        self._read()
        return "\n".join(line.rstrip() for line in self._screen.display)

    def shows(self, *texts: str) -> str:
        """Wait until the screen shows all texts; return it."""
        return wait_until(lambda: self._if_all(texts, self.text()), f"{texts} on the terminal")

    def prints(self, *texts: str) -> str:
        """Wait until the pipe has received all texts; return what it has received."""

        def received() -> str | None:
            self._read()
            return self._if_all(texts, self.piped)

        return wait_until(received, f"{texts} in the pipe")

    @staticmethod
    def _if_all(texts: tuple[str, ...], shown: str) -> str | None:
        return shown if all(text in shown for text in texts) else None

    def type(self, text: str) -> None:
        """Press keys; `\\x03` is Ctrl-C."""
        os.write(self._device, text.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Change the size of the terminal, as a window does: its text is lost."""
        self._screen.resize(lines, columns)
        self._screen.reset()
        _set_size(self._device, columns, lines)

    def ends(self, pressing: str = "") -> int:
        """Wait until the command has ended; return its exit code.

        Args:
            pressing: keys that are pressed until then, since a Ctrl-D is lost while the terminal changes its mode.
        """

        def status() -> tuple[int, int] | None:
            self._read()
            process, code = os.waitpid(self._fork, os.WNOHANG)
            if pressing and not process:
                with suppress(OSError):  # the command has closed the terminal
                    self.type(pressing)
            return (process, code) if process else None

        code = os.waitstatus_to_exitcode(wait_until(status, "the end of the command")[1])
        self._fork = 0
        self._read()
        return code

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._fork, number)

    def close(self) -> None:
        if self._fork:
            os.kill(self._fork, signal.SIGKILL)
            os.waitpid(self._fork, 0)
        for each in (self._device, self._output):
            if each is not None:
                os.close(each)

    def _read(self) -> None:
        while data := _available(self._device):
            self.written += data
            self._stream.feed(data)
        while self._output is not None and (data := _available(self._output)):
            self.piped += data.decode()


@contextmanager
def terminal(
    *arguments: str, columns: int = 80, lines: int = 24, piped: bool = False, before: Callable[[], None] = lambda: None
) -> Iterator[Terminal]:
    """Run a command on a pseudo-terminal; stop it at the end.

    Args:
        piped: stdout is a pipe instead of the terminal.
        before: called in the fork before the command, to replace functions there.
    """
    output, pipe = os.pipe() if piped else (None, None)
    with warnings.catch_warnings():
        # A worker of xdist has a thread that waits for messages, and holds no lock that the command needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        fork, device = pty.fork()
    if fork == 0:
        _run(arguments, pipe, before)
    if pipe is not None:
        os.close(pipe)
    _set_size(device, columns, lines)
    made = Terminal(fork, device, columns, lines, output)
    try:
        yield made
    finally:
        made.close()


def _run(arguments: tuple[str, ...], pipe: int | None, before: Callable[[], None]) -> None:
    code = 99  # of a defect in the test
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a worker of xdist ignores it
        if pipe is not None:
            os.dup2(pipe, 1)
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)
        os.environ["TERM"] = "xterm-256color"
        while not os.get_terminal_size(0).columns:  # until the test has set it
            signal.sigtimedwait([], 0.001)
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
        sys.argv, sys.modules["__main__"].__package__ = ["slotkeeper"], ""  # the script that pip installs
        before()
        command.main(list(arguments))
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 98
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _set_size(device: int, columns: int, lines: int) -> None:
    fcntl.ioctl(device, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def _available(descriptor: int) -> bytes:
    if not select.select([descriptor], [], [], 0)[0]:
        return b""
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the terminal's other side has ended
        return b""
