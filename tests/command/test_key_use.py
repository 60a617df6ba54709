"""The use by key of a process, as `status`, the console and the doctor show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.slots.process import Holder
from slotkeeper.slots.queued import Queued, place_of
from slotkeeper.slots.rows import QueuedRow
from slotkeeper_cli.account import Account
from slotkeeper_cli.doctor.slot_checks import full_keys
from slotkeeper_cli.key_use import key_use
from slotkeeper_cli.look.pages import render
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.web import pages
from slotkeeper_cli.web.frame import View
from slotkeeper_cli.web.reading import PageReadings
from tests.command.account_contents import HOSTILE, edit, is_harmless
from tests.command.operator_account import NOW, Operator
from tests.command.test_doctor_checks import process

LEASE = Holder("LEASED", 0, "", None, {}, 2)


@pytest.mark.parametrize(
    ("held", "queued", "settings", "used"),
    [
        (["", LEASE], [""], {}, []),  # no keys
        (["", LEASE], [], {"key_limit": 2}, [(None, 1, 2, 0)]),
        (
            ["a", "a", "b", "c", "c"],
            ["b", "d", "", "e", "e"],
            {"key_limit": 2, "key_limits": {"c": 8, "e": 0}},
            [("e", 0, 0, 2), ("a", 2, 2, 0), ("b", 1, 2, 1), ("c", 2, 8, 0), (None, 0, 2, 1), ("d", 0, 2, 1)],
        ),
        (["a", "b", "b"], [], {"key_limits": {"a": 1}}, [("a", 1, 1, 0), ("b", 2, None, 0)]),
        (["a"], None, {}, [("a", 1, None, None)]),  # the queue was not read
    ],
)
def test_the_fullest_keys_come_first_then_the_most_queued(
    held: list[Any], queued: list[str] | None, settings: dict[str, Any], used: list[Any]
) -> None:
    every = (LEASE if each == LEASE else replace(LEASE, state="RUNNING", weight=1, key=each) for each in held)
    places = [Queued("p-1", place_of(1, NOW, "1", key)) for key in queued or ()]
    rows = None if queued is None else [QueuedRow(each, "a", "normal", NOW) for each in places]
    shown = key_use(process(holders=dict(enumerate(every)), **settings), rows)
    assert [tuple(each.values()) for each in shown] == used


def test_a_command_and_a_page_show_the_fullest_keys_and_a_page_finds_requests_of_a_key(operator: Operator) -> None:
    operator.processes.set_limit("sample", 6)
    operator.processes.set_key_limit("sample", 2)
    names = [operator.hold(each, key=key) for each, key in (("a", "acme"), ("b", "acme"), ("e", "<img src=x>"))]
    operator.wait("plain")
    for request_id, key in (("c", "acme"), ("d", "acme"), *((f"r{at}", f"k{at:02}") for at in range(12))):
        operator.wait(request_id, key=key)
    shown = operator.run("status", "sample").stdout
    assert '\n  key "acme"              [##########]  2 of 2 in use, 2 queued\n' in shown
    assert "\n  requests without a key  [..........]  0 of 2 in use, 1 queued\n" in shown
    assert "\n  and 5 more keys\nholder  key     " in shown
    fullest = '\n  key "acme"  [##########]  2 of 2 in use, 2 queued\n  and 14 more keys\n'
    assert fullest in operator.run("status").stdout
    (found,) = operator.run("status", "sample", "--json").json["processes"]
    assert (len(found["keys"]), found["keys"][0]) == (15, {"key": "acme", "in_use": 2, "limit": 2, "queued": 2})

    data = {**PageReadings(StackConnection("slotkeeper")).process("sample").read()}
    data["requests"] = [{**each, "key": "acme" if each["request_id"] in "cd" else None} for each in data["requests"]]
    data["process"]["queue"]["is_cut"] = True
    view = View(False, "process/sample", {"q": "ACME"}, str)
    page = render("process.html", **pages._process(data, view), view=view)
    assert (page.count('aria-label="2 of 2 slots in use"'), "<img" in page) == (1, False)
    assert "and 5 more keys, in the part of the queue that was read" in page
    queue = render("queue.html", **pages._queue(data, view), view=view)
    assert (queue.count(">acme<"), queue.count('<th role="columnheader" scope="col">Key</th>')) == (4, 2)

    edit(operator, f"holders/{names[0]}/key", {"S": HOSTILE})
    assert all(is_harmless(operator.run("status", *of).stdout) for of in ([], ["sample"], ["sample", "--json"]))


@pytest.mark.parametrize(
    "key", ["[/]", "[red]x", "--help", "a=b", "<img src=x>", "$(id)", 'it\'s "q"', " {0}%s ", "a\u202eb"]
)
def test_a_key_of_any_text_is_harmless_and_found(key: str, operator: Operator) -> None:
    operator.processes.set_limit("sample", 5)
    operator.processes.set_key_limit("sample", 2)
    assert operator.run("process", "set-key-limit", "sample", "1", f"--key={key}").exit_code == 0
    operator.hold("a", key=key)
    operator.wait("b", key=key)
    operator.wait("other")
    for command in (
        ["status", "sample"],
        ["explain", "b"],
        ["explain", "--process=sample", f"--key={key}"],
        ["request", "list", "sample", f"--key={key}"],
        ["failed", "list", f"--key={key}"],
        ["process", "show", "sample"],
        ["doctor"],
        ["audit"],
    ):
        assert is_harmless(operator.run(*command).stdout), command
    listed = operator.run("request", "list", "sample", f"--key={key}", "--json").json
    assert [each["request_id"] for each in listed["requests"]] == ["a", "b"]
    cancelled = operator.run("request", "cancel", "--process=sample", "--all", f"--key={key}", "--yes", "--json").json
    assert [each["request_id"] for each in cancelled["cancelled"]] == ["b"]


WHAT = 'process sample: 2 requests are queued: 1 of 1 slots of key "acme" in use'


@pytest.mark.parametrize(
    ("key", "change", "what"),
    [
        ("acme", lambda _: None, WHAT),
        ("", lambda _: None, WHAT.replace('key "acme"', "requests without a key")),
        ("acme", lambda one: one.wait("d", key="beta"), WHAT),  # which may start too
        ("acme", lambda one: one.processes.set_key_limit("sample", None, "acme"), ""),
        ("acme", lambda one: one.processes.set_limit("sample", 1), ""),
        ("acme", lambda one: one.processes.pause("sample"), ""),
        ("acme", lambda one: one.wait("d", priority="high", weight=3), ""),  # for which the free slots are kept
    ],
)
def test_the_doctor_finds_a_key_whose_limit_alone_keeps_requests_back(
    key: str, change: Any, what: str, operator: Operator
) -> None:
    operator.processes.set_limit("sample", 3)
    operator.processes.set_key_limit("sample", 3)
    operator.processes.set_key_limit("sample", 1, key)
    for start, request_id in ((operator.hold, "a"), (operator.wait, "b"), (operator.wait, "c")):
        start(request_id, **({"key": key} if key else {}))
    change(operator)
    account = Account(StackConnection("slotkeeper"))
    assert list(full_keys(account, NOW + 590)) == []
    found = [(each.severity, each.what, each.command) for each in full_keys(account, NOW + 610)]
    command = "slotkeeper process set-key-limit sample N" + " --key acme" * bool(key)
    assert found == [("warn", what, command)] * bool(what)
