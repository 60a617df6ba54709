"""The console in a real browser, on the deployed stack: what an operator sees, may do, and must not be able to do."""

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

from slotkeeper.slots.rows import RequestRows
from slotkeeper_cli.stack_connection import LOCAL_FILE
from slotkeeper_cli.web.server import page_leading_to
from tests.e2e.deployed_stack import DeployedStack
from tests.support.http_servers import Listener, ok
from tests.support.waiting import NEVER, wait_until

NOTHING = "about:blank"  # an open page of the console would continue to read the stack
MARKUP = "<img src=x onerror=document.title='run'>"


@contextmanager
def console(deployed: DeployedStack, *options: str) -> Iterator[str]:
    """Serve the console as an operator does; yields its address."""
    folder = deployed.aws.state_dir
    # NiceGUI would take the console for a test of its own.
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
def read_only(browser: Any, deployed: DeployedStack) -> Iterator[Any]:
    """A page of the read-only console, on a phone."""
    with console(deployed) as address:
        yield _opened(browser, address, width=390)


@pytest.fixture(scope="module")
def with_write(browser: Any, deployed: DeployedStack) -> Iterator[Any]:
    """A page of the console with --write."""
    with console(deployed, "--write") as address:
        yield _opened(browser, address, width=1280)


@pytest.fixture
def page(read_only: Any) -> Iterator[Any]:
    yield read_only
    read_only.goto(NOTHING)


@pytest.fixture
def writing(with_write: Any) -> Iterator[Any]:
    yield with_write
    with_write.goto(NOTHING)


def _opened(browser: Any, address: str, width: int) -> Any:
    below = address.partition("?")[0]
    page = browser.new_context(viewport={"width": width, "height": 900}, base_url=below).new_page()
    page.set_default_timeout(NEVER * 1000)
    with page_leading_to(address) as file:
        page.goto(file)
        page.get_by_text("Read at").wait_for()
    page.goto(address)  # again
    page.get_by_text("Read at").wait_for()
    assert page.url == below
    return page


def _see(page: Any, text: str) -> None:
    """Wait until the page shows a text, by itself."""
    page.get_by_text(text).first.wait_for()


def _state(stack: DeployedStack, process: str, execution: str) -> str:
    """The state of a request; empty until it has a row."""
    row = RequestRows(stack.aws.client("dynamodb"), stack.outputs["RequestTableName"]).row(process, execution)
    return row.state if row else ""


def _await_queued(stack: DeployedStack, process: str, execution: str) -> None:
    wait_until(lambda: _state(stack, process, execution) == "QUEUED", f"{execution} to be queued")


def test_a_request_is_seen_waiting_with_its_reason_then_running_then_finished(stack: DeployedStack, page: Any) -> None:
    process = stack.process(limit=1)
    stack.send(process, "first")
    second = stack.send(process, "second")
    _await_queued(stack, process, second)
    page.goto("./")
    page.get_by_label("Filter Processes").fill(process)
    page.get_by_role("link", name=process, exact=True).click()
    _see(page, "1 of 1 slot in use")
    page.get_by_role("link", name="second").click()
    _see(page, "Number 1 in the queue.")
    _see(page, "Waits because: 1 of 1 slot in use")
    stack.end(process, "first")
    _see(page, "it has held a slot for")
    stack.end(process, "second")
    _see(page, "attempt 1 succeeded")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_name_with_markup_in_it_stays_text(stack: DeployedStack, page: Any) -> None:
    process = stack.process(limit=1)
    execution = stack.send(process, MARKUP, arguments={"--gate": f"{process}/markup"})
    stack.wait_until_running(execution)
    page.goto(f"process/{process}")
    page.get_by_role("link", name=MARKUP).click()
    _see(page, f"Request {MARKUP}")
    stack.end(process, "markup", how="fail")
    stack.wait_for_status(execution, "FAILED")
    page.goto("failures")
    page.get_by_role("link", name=MARKUP).wait_for()
    assert page.title() != "run"
    assert page.locator("img").count() == 0


def test_a_pause_is_refused_without_write(stack: DeployedStack, page: Any) -> None:
    process = stack.process(limit=1)
    page.goto(f"process/{process}")
    page.get_by_role("button", name="Pause").click()
    _see(page, "This console is read-only. Nothing was changed.")
    _see(page, f"slotkeeper --local process pause {process}")
    assert page.get_by_role("button", name="Run").is_disabled()
    # Also for a browser that enables the button itself.
    page.evaluate("document.querySelectorAll('button').forEach(each => each.disabled = false)")
    page.get_by_role("button", name="Run").click(force=True)
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
    writing.get_by_role("button", name="Run").click()
    _see(writing, f"{process}: paused")
    writing.get_by_role("button", name="Close").click()
    _see(writing, "PAUSED: no request is admitted")
    assert stack.item(process).paused
    logs = stack.aws.client("logs")
    events = logs.filter_log_events(logGroupName=stack.outputs["AuditLogGroupName"])["events"]
    lines = [json.loads(each["message"]) for each in events]
    assert [each["action"] for each in lines if each.get("process") == process] == ["process pause"]


def test_a_command_that_asks_is_confirmed_by_its_own_question(stack: DeployedStack, writing: Any) -> None:
    process = stack.process(limit=1)
    stack.send(process, "held")
    waiting = stack.send(process, "waits")
    _await_queued(stack, process, waiting)
    writing.goto(f"request?id=waits&process={process}")
    writing.get_by_role("button", name="slotkeeper request cancel").click()
    writing.get_by_role("button", name="Run").click()
    _see(writing, "Cancel")
    assert _state(stack, process, waiting) == "QUEUED"
    writing.get_by_role("button", name="Yes").click()
    writing.get_by_role("button", name="Close").wait_for()
    assert _state(stack, process, waiting) == "CANCELLED"
    stack.end(process, "held")


def test_several_requests_of_the_queue_are_cancelled_together(stack: DeployedStack, writing: Any) -> None:
    process = stack.process(limit=1)
    stack.send(process, "held")
    queued = [stack.send(process, each) for each in ("one", "two", "three")]
    for each in queued:
        _await_queued(stack, process, each)
    writing.goto(f"process/{process}")
    for each in ("one", "three"):
        row = writing.get_by_role("row").filter(has=writing.get_by_role("link", name=each, exact=True))
        row.get_by_role("checkbox").click()
    writing.get_by_role("button", name="Cancel requests").click()
    writing.get_by_role("button", name="Run").click()
    writing.get_by_role("button", name="Yes").click()
    writing.get_by_role("button", name="Close").wait_for()
    assert [_state(stack, process, each) for each in queued] == ["CANCELLED", "QUEUED", "CANCELLED"]
    stack.end(process, "held")
    stack.end(process, "two")


@pytest.mark.parametrize(
    ("address", "shown"),
    [("retries", "default"), ("token", "The token itself is never read here"), ("alarms", "JanitorSilentAlarm")],
)
def test_the_other_pages_show_what_they_are_about(page: Any, address: str, shown: str) -> None:
    page.goto(address)
    _see(page, shown)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_each_page_can_be_used_by_keyboard_and_screen_reader(page: Any) -> None:
    page.goto("./")
    _see(page, "Read at")
    for role in ("banner", "navigation", "main", "search"):
        assert page.get_by_role(role).count() == 1, role
    assert page.get_by_role("heading", level=1).inner_text() == "Processes"
    unnamed = "input:not([aria-label]):not([id]), button:not([aria-label]):empty, svg[role=img]:not([aria-label])"
    assert page.locator(unnamed).count() == 0
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") in ("Processes", "")


def test_a_console_that_ends_while_it_reads_dead_letters_leaves_none_hidden(stack: DeployedStack, browser: Any) -> None:
    queue = {"QueueUrl": stack.outputs["RequestDeadLetterQueueUrl"], "AttributeNames": ["All"]}

    def messages(kind: str) -> int:
        return int(stack.sqs.get_queue_attributes(**queue)["Attributes"][f"ApproximateNumberOfMessages{kind}"])

    stack.send_raw("no JSON", stack.process(limit=1))
    wait_until(lambda: messages(""), "a dead letter")
    with console(stack) as address:
        page = _opened(browser, address, width=390)
        page.goto("dead-letters")
        wait_until(lambda: messages("NotVisible"), "the console to receive it", interval=0.01)
    # Other consoles read for a while after their pages were left. A message that was left hidden is so for ten minutes.
    wait_until(lambda: messages("NotVisible") == 0, "all to be visible again")
