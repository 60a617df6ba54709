"""The pages of what is out of order: failures, dead letters, retries and breakers, the token, alarms."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from nicegui import ui

from slotkeeper.next_step import NextStep, next_step
from slotkeeper.retry.downstream.health import State
from slotkeeper_cli.doctor.alarm_checks import first_step
from slotkeeper_cli.failures import FailureGroup
from slotkeeper_cli.formatting import count, duration, local_time, seconds
from slotkeeper_cli.retries import line
from slotkeeper_cli.web.actions import Actions
from slotkeeper_cli.web.frame import Frame, Texts, data_table, request_address, set_rows
from slotkeeper_cli.web.reading import MAX_DEAD_LETTERS, StackReader, alarms_ringing

_FAILURES = {
    "process": "Process",
    "code": "Code",
    "reason": "Reason",
    "requests": ">Requests",
    "first": "First",
    "last": "Last",
    "newest": "The newest one",
}
_DEAD_LETTERS = {
    "request": "Request",
    "process": "Process",
    "code": "Code",
    "reason": "Reason",
    "attempt": ">Attempt",
    "since": "Since",
    "queue": "Queue",
}
_BREAKERS = {
    "downstream": "Downstream",
    "state": "Breaker",
    "why": "Reason",
    "callers": ">Callers permitted",
    "failures": ">Failures",
    "retries": ">Retries allowed",
}
_ALARMS = {"alarm": "Alarm", "state": "State", "since": "Since", "reason": "Reason", "step": "First step"}


def declare(reader: StackReader, actions: Actions) -> None:
    """Declare the pages."""

    _declare_failures(reader, actions)

    @ui.page("/retries")
    def retries() -> None:
        with Frame(reader, "Retries", actions.writes) as frame:
            texts = Texts()
            table = data_table("Downstreams", _BREAKERS, "downstream").props('selection="single"')
            # A scan of the ledger, which a refresh must not make.
            actions.look("List waiting retries", lambda: next_step("retry list"))
            with ui.row():
                why = ui.input("Why").props("dense")

                def command(action: str) -> NextStep:
                    (row,) = table.selected
                    return next_step(f"retry breaker {action}", row["downstream"], why=why.value)

                for name, action, icon in (("Open breaker", "open", "block"), ("Close breaker", "close", "check")):
                    button = actions.button(name, partial(command, action), icon)
                    button.bind_enabled_from(table, "selected", backward=bool)

        def show(read: list[dict[str, Any]]) -> None:
            texts.show(_breaker_texts(read))
            set_rows(table, [_breaker_row(each) for each in read])

        frame.follow(reader.downstreams, show)

    @ui.page("/token")
    def token() -> None:
        with Frame(reader, "Token", actions.writes) as frame:
            texts = Texts()
            actions.button("Invalidate", lambda: next_step("token invalidate"), "key_off")
        frame.follow(reader.token, lambda data: texts.show(_token_texts(data)))

    @ui.page("/alarms")
    def alarms() -> None:
        with Frame(reader, "Alarms", actions.writes) as frame:
            actions.look("Check the stack", lambda: next_step("doctor"))
            table = data_table("Alarms", _ALARMS, "alarm")

        def show(data: Any) -> None:
            ringing = alarms_ringing(data.alarms)
            others = [each for each in data.alarms if each not in ringing]
            set_rows(table, [_alarm_row(each) for each in (*ringing, *others)])

        frame.follow(reader.overview, show)


def _declare_failures(reader: StackReader, actions: Actions) -> None:
    @ui.page("/failures")
    def failures() -> None:
        with Frame(reader, "Failures", actions.writes) as frame:
            ui.label(
                "The requests that failed, were rejected or too late, without those that were redriven or discarded. "
                "Equal failures are one line."
            )
            texts = Texts()
            table = data_table("Failures", _FAILURES, "group", link="newest")
            with _buttons(actions, table, lambda verb, row: next_step(f"failed {verb}", row["group"])):
                look = actions.look("Show requests", lambda: next_step("failed show", table.selected[0]["group"]))
                look.bind_enabled_from(table, "selected", backward=bool)
            ui.link("Dead-letter messages: what is no request, and what the worker gave up", "dead-letters")

        def show(read: tuple[list[FailureGroup], list[str]]) -> None:
            groups, not_read = read
            number = sum(len(each.rows) for each in groups)
            texts.show([count(number, "failure"), *(f"Not read: {each}" for each in not_read)])
            set_rows(table, [_failure_row(each) for each in groups])

        frame.follow(reader.failures, show)

    @ui.page("/dead-letters")
    def dead_letters() -> None:
        with Frame(reader, "Dead letters", actions.writes) as frame:
            ui.label(
                f"The newest {MAX_DEAD_LETTERS:,} messages of each dead-letter queue. Reading hides them from other "
                "commands for a moment, so this page reads them only when you open it or ask."
            )
            summary = Texts()
            table = data_table("Dead-letter messages", _DEAD_LETTERS, "message_id", link="request")
            _buttons(actions, table, lambda verb, row: next_step(f"dlq {verb}", row["queue"], id=row["message_id"]))

        def show(queues: list[dict[str, Any]]) -> None:
            summary.show(_summary(queues))
            set_rows(table, [_message_row(each["queue"], one) for each in queues for one in each["messages"]])

        frame.follow(reader.dead_letters, show, every=None)


def _buttons(actions: Actions, table: ui.table, step: Callable[[str, Any], NextStep]) -> ui.row:
    """Buttons that redrive or discard the selected row of a table: `step` returns the command of a verb and a row."""
    table.props('selection="single"')

    def command(verb: str) -> NextStep:
        (row,) = table.selected
        return step(verb, row)

    with ui.row() as row:
        for name, icon in (("Redrive", "replay"), ("Discard", "delete")):
            button = actions.button(name, partial(command, name.lower()), icon)
            button.bind_enabled_from(table, "selected", backward=bool)
    return row


def _failure_row(group: FailureGroup) -> dict[str, Any]:
    newest, shown = group.rows[0], group.as_dict()
    return {
        **shown,
        "first": local_time(seconds(shown["first"])),
        "last": local_time(seconds(shown["last"])),
        "newest": newest.request_id,
        "href": request_address(newest.request_id, newest.process),
    }


def _summary(queues: list[dict[str, Any]]) -> Iterator[str]:
    for each in queues:
        codes = Counter(one["code"] for one in each["messages"])
        of = ", ".join(f"{number:,} {code}" for code, number in codes.most_common())
        yield f"{each['queue'].full_name}: {count(len(each['messages']), 'message')}{f' ({of})' * bool(of)}"
        if each["unread"]:
            yield f"Not read: {each['unread']}"


def _message_row(queue: str, message: Mapping[str, Any]) -> dict[str, Any]:
    request_id, process = message["request_id"], message.get("process", "")
    return {
        "message_id": message["message_id"],
        "request": request_id or "no request id",
        "href": request_address(request_id or message["message_id"], process),
        "process": process,
        "code": message["code"],
        "reason": message["reason"],
        "attempt": message["attempt"],
        "since": local_time(seconds(message["since"])),
        "queue": str(queue),
    }


def _breaker_texts(read: list[dict[str, Any]]) -> Iterator[str]:
    now = time.time()
    not_closed = [each for each in read if each["state"] not in (State.CLOSED, "malformed")]
    yield from (line(each, now) for each in not_closed)
    if not not_closed:
        yield "Every breaker is closed."


def _breaker_row(each: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "downstream": each["downstream"],
        "state": each["state"],
        "why": each["why"] or "",
        "callers": _number(each.get("permitted_callers")),
        "failures": _number(each.get("failures")),
        "retries": _number(each.get("allowed_retries")),
    }


def _number(value: int | None) -> str:
    return "no limit" if value is None else f"{value:,}"


def _token_texts(data: Mapping[str, Any]) -> Iterator[str]:
    if not data["generation"]:
        yield "No token was requested yet: the first message to the chatbot requests one."
    else:
        stored = "is stored" if data["stored"] else "was removed, and not requested since"
        yield f"The token of generation {data['generation']} {stored}, {duration(data['age_seconds'])} old."
    if lock := data["lock"]:
        ended = ", and its holder has died" if lock["expired"] else ""
        yield f"It is being refreshed since {local_time(seconds(lock['since']))}{ended}."
    if refused := data["refused"]:
        over = "was" if refused["over"] else "is"
        yield f"The API {over} refusing tokens until {local_time(seconds(refused['until']))}: {refused['reason']}"
    yield f"It is refreshed by {data['refreshed_by']}. The token itself is never read here."


def _alarm_row(alarm: Mapping[str, Any]) -> dict[str, Any]:
    at = alarm.get("StateUpdatedTimestamp")
    return {
        "alarm": alarm["LogicalId"],
        "state": alarm["StateValue"],
        "since": local_time(at.timestamp()) if at else "",
        "reason": alarm.get("StateReason", ""),
        "step": first_step(alarm)[0],
    }
