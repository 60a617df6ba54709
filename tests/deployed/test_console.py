"""The console in a real browser, on the deployed stack: a request's way, and an audited change."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from slotkeeper_cli.stack_connection import LOCAL_FILE
from slotkeeper_cli.web.server import page_leading_to
from tests.deployed.deployed_stack import DeployedStack
from tests.http_servers import Listener, ok
from tests.waiting import NEVER

NOTHING = "about:blank"  # an open page of the console would continue to read the stack


@contextmanager
def console(deployed: DeployedStack, *options: str) -> Iterator[str]:
    """Serve the console as an operator does; yields its address."""
    folder = deployed.aws.state_dir
    # NiceGUI would take the console for one of its tests.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    served = subprocess.Popen(
        [sys.executable, "-m", "slotkeeper_cli", "--local", "web", "--no-browser", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment
        | {LOCAL_FILE: str(folder / "outputs.json"), "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
    )
    try:
        assert served.stderr is not None
        said = served.stderr.readline()
        address = re.search(r"http://\S+", said)
        assert address is not None, said + served.stderr.read()
        yield address[0]
    finally:
        served.terminate()
        served.wait()


@pytest.fixture(scope="module")
def consoles(browser: Any, deployed: DeployedStack) -> Iterator[dict[str, Any]]:
    """A page of the read-only console, on a phone, and one of the console with --write."""
    with console(deployed) as read_only, console(deployed, "--write") as writing:
        yield {"page": _opened(browser, read_only, 390), "writing": _opened(browser, writing, 1280)}


@pytest.fixture
def page(consoles: dict[str, Any]) -> Iterator[Any]:
    yield consoles["page"]
    consoles["page"].goto(NOTHING)


@pytest.fixture
def writing(consoles: dict[str, Any]) -> Iterator[Any]:
    yield consoles["writing"]
    consoles["writing"].goto(NOTHING)


def _opened(browser: Any, address: str, width: int) -> Any:
    below = address.partition("?")[0]
    page = browser.new_context(viewport={"width": width, "height": 900}, base_url=below).new_page()
    page.set_default_timeout(NEVER * 1000)
    with page_leading_to(address) as file:
        page.goto(file)
        _see(page, "Processes")
    page.goto(address)  # again
    _see(page, "Processes")
    assert page.url == below
    return page


def _see(page: Any, text: str) -> None:
    """Wait until the page shows a text, by itself."""
    page.get_by_text(text).first.wait_for()


def test_a_request_is_seen_waiting_with_its_reason_then_running_then_finished(stack: DeployedStack, page: Any) -> None:
    process = stack.process(limit=1)
    stack.send(process, "first")
    second = stack.send(process, "second")
    stack.wait_until_queued(process, second)
    page.goto("./")
    page.get_by_label("Name of a process").fill(process)
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("link", name=process, exact=True).click()
    page.get_by_role("link", name="second").click()
    _see(page, "It is number 1 of 1 in the queue")
    _see(page, "1 of 1 slot in use")
    stack.end(process, "first")
    _see(page, "It has held a slot for")
    stack.end(process, "second")
    _see(page, "Attempt 1 succeeded")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_pause_is_refused_without_write(stack: DeployedStack, page: Any) -> None:
    process = stack.process(limit=1)
    page.goto(f"process/{process}")
    page.get_by_role("button", name="Pause").click()
    _see(page, "This console is read-only. Nothing was changed.")
    _see(page, f"slotkeeper --local process pause {process}")
    assert page.get_by_role("button", name="Run").count() == 0
    # Also for a browser that pretends that the button was pressed.
    page.evaluate("document.querySelector('[data-press]').dataset.press = 'run'")
    page.locator("[data-press]").click()
    assert not stack.item(process).paused


def test_the_server_of_another_port_receives_nothing_of_the_console(page: Any) -> None:
    with Listener(ok(b"{}")) as other:
        page.goto(other.url)
    # A browser may also open connections without a request.
    assert other.requests[0].startswith(b"GET")
    assert not any(b"cookie" in request.lower() for request in other.requests)


def test_with_write_a_pause_is_the_audited_command(stack: DeployedStack, writing: Any) -> None:
    process = stack.process(limit=1)
    writing.goto(f"process/{process}")
    writing.get_by_role("button", name="Pause").click()
    writing.get_by_role("button", name="Run", exact=True).click()
    _see(writing, f"{process}: paused")
    writing.get_by_role("button", name="Close").click()
    writing.get_by_role("button", name="Resume", exact=True).wait_for()
    assert stack.item(process).paused
    logs = stack.aws.client("logs")
    events = logs.filter_log_events(logGroupName=stack.outputs["AuditLogGroupName"])["events"]
    lines = [json.loads(each["message"]) for each in events]
    assert [each["action"] for each in lines if each.get("process") == process] == ["process pause"]
