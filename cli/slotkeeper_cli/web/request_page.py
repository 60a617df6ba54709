"""The page of a request: where it is and why, each attempt, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from nicegui import ui

from slotkeeper.next_step import NextStep
from slotkeeper.printable import printable
from slotkeeper_cli.conditions import waited
from slotkeeper_cli.formatting import local_time, seconds
from slotkeeper_cli.web.actions import Actions
from slotkeeper_cli.web.frame import Frame, Texts, data_table, set_rows
from slotkeeper_cli.web.reading import StackReader

_ATTEMPTS = {"number": ">Attempt", "state": "State", "since": "Since", "execution": "Execution", "details": "Details"}
# Facts of an attempt that have a column of their own, or that the answer states.
_NOT_DETAILS = {"attempt", "state", "execution", "since", "started", "conditions", "because", "cause", "ahead", "link"}


def declare(reader: StackReader, actions: Actions) -> None:
    """Declare the page."""

    @ui.page("/request")
    def request(id: str, process: str = "") -> None:
        given = id.strip()
        with Frame(reader, f"Request {given}", actions.writes) as frame:
            answer = ui.label().props('role="status"').classes("text-lg whitespace-pre-wrap")
            texts = Texts()
            steps = Texts()
            attempts = data_table("Attempts", _ATTEMPTS, "key")

        def show(data: dict[str, Any]) -> None:
            found = [*data["found"], *data["leases"], *([data["work"]] if data["work"] else [])]
            texts.show(_texts(data, found))
            answer.set_text(printable(_answer(given, data, found), keep="\n"))
            commands = [each for one in found for each in one.get("next_steps", [])]
            _show_steps(list(dict.fromkeys(commands)), steps, actions)
            set_rows(attempts, [*_attempts(found)])

        frame.follow(lambda: reader.request(given, process or None), show)


def _answer(given: str, data: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> str:
    """What the request is, in one or two sentences for each process that has it."""
    if not found:
        unread = "" if not data["not_read"] else " in what could be read"
        state = f"{data['state']}: it was found nowhere" if data["state"] else f"no request {given} was found"
        return f"{state[0].upper()}{state[1:]}{unread}."
    return "\n".join(f"{one.get('process', 'worker')}: {one.get('answer') or one.get('malformed')}" for one in found)


def _texts(data: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The conditions that fail, the expected start, and what was not found or not read."""
    for one in found:
        yield from (f"Waits because: {each['text']}" for each in one.get("conditions", []))
        if expected := one.get("expected_start"):
            yield f"Expected start: {expected['text']}"
    yield from (f"Perhaps {each}" for each in data["may_be"])
    yield from (f"Not read: {each['source']}: {each['why']}" for each in data["not_read"])


def _show_steps(commands: Sequence[str], steps: Texts, actions: Actions) -> None:
    """Show the next steps, each that is complete as a button that runs it."""
    if not steps.replace(commands):
        return
    with steps:
        for command in commands:
            if isinstance(command, NextStep) and command.is_complete:
                actions.button(command, partial(NextStep, command.arguments), "play_arrow")
            else:
                ui.label(printable(command))


def _attempts(found: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in found:
        for each in one.get("attempts") or [] if "process" in one else []:
            since = each.get("since") or each.get("started")
            facts = {name: value for name, value in each.items() if value and name not in _NOT_DETAILS}
            yield {
                "key": f"{one['process']} {each['execution']} {each['attempt']}",
                "number": each["attempt"],
                "state": each["state"],
                "since": local_time(seconds(since)) if since else "",
                "execution": each["execution"] or "",
                "details": "; ".join(f"{name.replace('_', ' ')}: {_value(value)}" for name, value in facts.items()),
            }
            for ahead in each.get("ahead", []):
                yield {
                    "key": ahead["execution"],
                    "state": "before it",
                    "details": f"{waited(ahead)}: {ahead['because']}",
                }
        for entry in one.get("history", []):
            yield {
                "key": f"worker {entry['attempt']}",
                "number": entry["attempt"],
                "state": "failed",
                "since": local_time(seconds(entry["at"])),
                "details": entry["error"],
            }


def _value(value: Any) -> str:
    """A fact as text; of work its state and id, of a dead-letter message its queue, code and reason."""
    if not isinstance(value, Mapping):
        return str(value)
    keys = ("state", "id", "queue", "code", "reason")
    return " ".join(str(value[key]) for key in keys if value.get(key))
