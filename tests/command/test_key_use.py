"""The use by key of a process, as `status`, the console and the doctor show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.slots.process import Holder
from slotkeeper.slots.queued import Queued, place_of
from slotkeeper.slots.rows import QueuedRow, RequestRows
from slotkeeper_cli.account import Account
from slotkeeper_cli.doctor.slot_checks import full_keys
from slotkeeper_cli.key_use import key_use, rest_text
from slotkeeper_cli.look.pages import render
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.web import pages
from slotkeeper_cli.web.frame import View
from slotkeeper_cli.web.reading import PageReadings
from tests.command.account_contents import HOSTILE, edit, is_harmless
from tests.command.operator_account import NOW, Operator
from tests.command.situations import set_clock
from tests.command.test_doctor_checks import process

MARKUP = "<img src=x onerror=document.title='run'>"
LEASE = Holder("LEASED", 0, "", None, {}, 2)


@pytest.mark.parametrize(
    ("held", "queued", "settings", "used"),
    [
        pytest.param(["", LEASE], [""], {}, [], id="no keys"),
        pytest.param(["", LEASE], [], {"key_limit": 2}, [(None, 1, 2, 0)], id="requests without a key have a limit"),
        pytest.param(
            ["a", "a", "b", "c", "c"],
            ["b", "d", "", "e", "e"],
            {"key_limit": 2, "key_limits": {"c": 8, "e": 0}},
            [("e", 0, 0, 2), ("a", 2, 2, 0), ("b", 1, 2, 1), ("c", 2, 8, 0), (None, 0, 2, 1), ("d", 0, 2, 1)],
            id="the fullest first, then the most queued",
        ),
        pytest.param(["a", "b", "b"], [], {"key_limits": {"a": 1}}, [("a", 1, 1, 0), ("b", 2, None, 0)], id="no limit"),
        pytest.param(["a"], None, {}, [("a", 1, None, None)], id="the queue was not read"),
    ],
)
def test_use_by_key(held: list[Any], queued: list[str] | None, settings: dict[str, Any], used: list[Any]) -> None:
    every = (LEASE if each == LEASE else replace(LEASE, state="RUNNING", weight=1, key=each) for each in held)
    places = [Queued("p-1", place_of(1, NOW, "1", key)) for key in queued or ()]
    rows = [QueuedRow(each, "a", "normal", NOW) for each in places]
    shown = key_use(process(holders=dict(enumerate(every)), **settings), None if queued is None else rows)
    assert [tuple(each.values()) for each in shown] == used


@pytest.fixture
def keyed(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """The key acme at its limit of 2, a key that is markup, and twelve others, eleven minutes later."""
    operator.processes.set_limit("sample", 6)
    operator.processes.set_key_limit("sample", 2)
    for request_id, key in (("a", "acme"), ("b", "acme"), ("e", MARKUP)):
        operator.hold(request_id, key=key)
    operator.wait("plain")
    for request_id, key in (("c", "acme"), ("d", "acme"), *((f"r{at}", f"k{at:02}") for at in range(12))):
        operator.wait(request_id, key=key)
    set_clock(monkeypatch, NOW + 660)
    return operator


def test_status_shows_the_fullest_keys(keyed: Operator) -> None:
    shown = keyed.run("status", "sample").stdout
    assert '\n  key "acme"                      [##########]  2 of 2 in use, 2 queued\n' in shown
    assert "\n  requests without a key          [..........]  0 of 2 in use, 1 queued\n" in shown
    assert "\n  and 5 more keys\nholder  key     " in shown
    overview = keyed.run("status").stdout
    assert '\n  key "acme": 2 of 2 in use, 2 queued; key "<img src....title=\'run\'>": 1 of 2 in use; ' in overview
    assert ": 0 of 2 in use, 1 queued; and 12 more keys\n" in overview
    (data,) = keyed.run("status", "sample", "--json").json["processes"]
    assert (len(data["keys"]), data["keys"][0]) == (15, {"key": "acme", "in_use": 2, "limit": 2, "queued": 2})
    edit(keyed, "holders/" + data["holders"][0]["execution"] + "/key", {"S": HOSTILE})
    for question in (["status"], ["status", "sample"], ["status", "sample", "--json"]):
        assert is_harmless(keyed.run(*question).stdout)


def test_a_queue_that_was_read_in_part_is_stated(keyed: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [rest_text("abc", shown, True)[:10] for shown in (2, 3)] == ["and 1 more", "in the par"]
    read = keyed.rows.queue("sample")
    monkeypatch.setattr(RequestRows, "queue", lambda *_: replace(read, rows=read.rows[:2], is_cut=True))
    shown = keyed.run("status", "sample").stdout
    assert "2 of 2 in use, 2 queued\n" in shown
    assert "\n  in the part of the queue that was read\n" in shown


def test_the_page_of_a_process_shows_use_by_key_and_finds_requests_of_a_key(keyed: Operator) -> None:
    data = {**PageReadings(StackConnection("slotkeeper")).process("sample").read()}
    data["requests"] = [{**each, "key": "acme" if each["request_id"] in "cd" else None} for each in data["requests"]]
    view = View(False, "process/sample", {"q": "ACME"}, str)
    shown = render("process.html", **pages._process(data, view), view=view)
    assert shown.count('aria-label="2 of 2 slots in use"') == 1
    assert "and 5 more keys" in shown
    assert "<img" not in shown
    queue = render("queue.html", **pages._queue(data, view), view=view)
    assert (queue.count(">acme<"), queue.count('<th role="columnheader" scope="col">Key</th>')) == (4, 2)


ACME = {"key": "acme"}
WHAT = 'process sample: 2 requests are queued: 1 of the 1 of key "acme" in use'


@pytest.mark.parametrize(
    ("key", "change", "what"),
    [
        (ACME, lambda _: None, WHAT),
        ({}, lambda _: None, WHAT.replace('key "acme"', "requests without a key")),
        (ACME, lambda one: one.wait("d", key="beta"), WHAT),  # which may start too
        (ACME, lambda one: one.processes.set_key_limit("sample", None, "acme"), ""),
        (ACME, lambda one: one.processes.set_limit("sample", 1), ""),
        (ACME, lambda one: one.processes.pause("sample"), ""),
        # The free slots are kept for a request of a higher priority.
        (
            ACME,
            lambda one: (
                one.processes.set_key_limit("sample", 3, "z") or one.wait("d", priority="high", weight=3, key="z")
            ),
            "",
        ),
    ],
)
def test_the_doctor_finds_a_key_whose_limit_alone_keeps_requests_back(
    key: dict[str, str], change: Any, what: str, operator: Operator
) -> None:
    operator.processes.set_limit("sample", 3)
    operator.processes.set_key_limit("sample", 3)
    operator.processes.set_key_limit("sample", 1, **key)
    operator.hold("a", **key)
    operator.wait("b", **key)
    operator.wait("c", **key)
    change(operator)
    account = Account(StackConnection("slotkeeper"))
    assert list(full_keys(account, NOW + 590)) == []
    found = [(each.severity, each.what, each.command) for each in full_keys(account, NOW + 610)]
    command = "slotkeeper process set-key-limit sample N" + " --key acme" * bool(key)
    assert found == [("warn", what, command)] * bool(what)
