"""The page of a request: where it is and why, each attempt, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from nicegui import ui

from slotkeeper.next_step import NextStep
from slotkeeper.printable import printable
from slotkeeper_cli.formatting import local_time, seconds
from slotkeeper_cli.web.actions import Actions
from slotkeeper_cli.web.frame import Frame, Texts, data_table, set_rows
from slotkeeper_cli.web.reading import StackReader

_ATTEMPTS = {"number": ">Attempt", "state": "State", "since": "Since", "execution": "Execution", "details": "Details"}
# Times of an attempt, of which the last one is when it came to its state.
_TIMES = ("sent", "held_since", "started", "ended")
# Facts of an attempt that have a column of their own, or that the answer states.
_NOT_DETAILS = {"attempt", "state", "execution", "cause", "link", "timeline", *_TIMES}


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
            found = data["found"]
            texts.show(_texts(data, found))
            answer.set_text(printable(_answer(given, data, found), keep="\n"))
            commands = [each for one in found for each in one.get("next", [])]
            _show_steps(list(dict.fromkeys(commands)), steps, actions)
            set_rows(attempts, [*_attempts(found)])

        frame.follow(lambda: reader.request(given, process or None), show)


def _answer(given: str, data: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> str:
    """What the request is, in one or two sentences for each process that has it."""
    if not found:
        unread = "" if not data["not_read"] else " in what could be read"
        return f"No request {given} was found{unread}."
    return "\n".join(f"{one.get('process', 'worker')}: {one['answer']}" for one in found)


def _texts(data: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Position and reasons, the expected start, and what was not found or not read."""
    for one in found:
        if position := one.get("position"):
            yield f"Number {position:,} in the queue."
        yield from (f"Waits because: {each['text']}" for each in one.get("reasons", []))
        if expected := one.get("expected_start"):
            yield f"Expected start: {expected['text']}"
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
        for each in one.get("attempts", []):
            since = next((each[name] for name in reversed(_TIMES) if each.get(name)), "")
            facts = {name: value for name, value in each.items() if value and name not in _NOT_DETAILS}
            yield {
                "key": f"{one['process']} {each['execution']} {each['attempt']}",
                "number": each["attempt"],
                "state": each["state"],
                "since": local_time(seconds(since)) if since else "",
                "execution": each["execution"] or "",
                "details": "; ".join(f"{name.replace('_', ' ')}: {_value(value)}" for name, value in facts.items()),
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
