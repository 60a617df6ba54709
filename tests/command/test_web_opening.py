"""`slotkeeper web` opens the browser, and no other user of the machine receives what opens the console."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import httpx

from tests.waiting import NEVER, wait_until

# Of a stack that these tests do not read. SIGTERM ends it as it ends each command.
SERVE = """
import signal, socket, sys
from unittest.mock import MagicMock
from slotkeeper_cli.output import Output
from slotkeeper_cli.web.server import HOST, serve
with socket.create_server((HOST, 0)) as free:
    port = free.getsockname()[1]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
serve(MagicMock(), port, writes=True, shows=bool(sys.argv[1:]), out=Output(False))
"""
# In the place of a browser: it prints its arguments, and on the next line who may read the file and its folder, and the
# file.
BROWSER = """#!{python}
import json, os, sys
print(json.dumps(sys.argv), flush=True)
file = sys.argv[1].removeprefix("file://")
modes = [os.stat(each).st_mode & 0o777 for each in (file, os.path.dirname(file))]
print(json.dumps([modes, open(file).read()]), flush=True)
"""
SHOW = "show"
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/([\w-]{43})/\?token=([\w-]{43})")


@contextmanager
def _console(home: Path, *arguments: str, browser: str = BROWSER, **streams: Any) -> Iterator[subprocess.Popen[str]]:
    program = home / "browser"
    program.write_text(browser.format(python=sys.executable))
    program.chmod(0o700)
    # NiceGUI would take the console for a test of its own.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"HOME": str(home), "PATH": str(home), "BROWSER": f"{program} %s"}
    environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))
    command = [sys.executable, "-c", SERVE, *arguments]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    with subprocess.Popen(command, env=environment, text=True, **streams) as served:
        never = Timer(NEVER, served.kill)  # ends a test that waits for a line
        never.start()
        try:
            yield served
        finally:
            never.cancel()
            served.terminate()


def _address(text: str) -> str:
    found = ADDRESS.search(text)
    assert found, text
    return found[0]


def _enter(address: str) -> None:
    assert "set-cookie" in httpx.get(address, trust_env=False).headers


def test_no_argument_and_no_output_has_what_opens_the_console(tmp_path: Path) -> None:
    with _console(tmp_path, SHOW) as served:
        assert served.stdout is not None
        first = served.stdout.readline()
        arguments = json.loads(served.stdout.readline())
        assert arguments[1].startswith("file://")
        modes, page = json.loads(served.stdout.readline())
        address = _address(page)
        _enter(address)
        wait_until(lambda: [each.name for each in tmp_path.iterdir()] == ["browser"], "the file to be removed")
        served.terminate()
        rest = served.communicate()
    assert modes == [0o600, 0o700]
    folder, token = ADDRESS.findall(address)[0]
    for text in (first, *arguments, *rest):
        assert folder not in text
        assert token not in text
    assert re.fullmatch(r"Console \(can change the stack\): http://127.0.0.1:\d+\n", first)


def test_a_terminal_shows_an_address_and_after_each_use_the_next_one(tmp_path: Path) -> None:
    device, side = pty.openpty()
    with _console(tmp_path, SHOW, stderr=side), open(device, errors="replace") as shown:
        address = _address(shown.readline())
        _enter(address)
        assert _address(shown.readline()) != address


def test_without_a_browser_the_address_is_printed_also_to_a_pipe(tmp_path: Path) -> None:
    with _console(tmp_path) as served:
        assert served.stderr is not None
        _enter(_address(served.stderr.readline()))
        _enter(_address(served.stderr.readline()))


def test_a_browser_that_does_not_open_is_stated(tmp_path: Path) -> None:
    with _console(tmp_path, SHOW, browser="#!/bin/sh\nexit 1\n") as served:
        assert served.stderr is not None
        assert served.stderr.readline().startswith("No browser could be opened. With --no-browser it prints")
