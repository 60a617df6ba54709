"""The page of a process's history: slots over time, who held and who waited, the checks of the audit, and "what if"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nicegui import ui

from slotkeeper.next_step import next_step
from slotkeeper_cli.audit.audit_page import history_timeline
from slotkeeper_cli.audit.history_reader import MAX_CALLS
from slotkeeper_cli.look.timeline import timeline_svg
from slotkeeper_cli.web.actions import Actions
from slotkeeper_cli.web.frame import Frame, Texts, data_table, process_address, set_rows
from slotkeeper_cli.web.reading import StackReader

_CHECKS = {"id": "Check", "result": "Result", "claim": "Claim", "finding": "What the records state"}
_PERIODS = {1: "1 hour", 3: "3 hours", 12: "12 hours", 24: "24 hours"}


def declare(reader: StackReader, actions: Actions) -> None:
    """Declare the page."""

    @ui.page("/history/{name}")
    def history(name: str, hours: int = 3) -> None:
        # A number of the address is not trusted: a long period makes many calls.
        period = hours if hours in _PERIODS else 3
        with Frame(reader, f"History of {name}", actions.writes) as frame:
            with ui.row().classes("items-center"):
                ui.link("The process now", process_address(name))
                for number, text in _PERIODS.items():
                    ui.link(text, f"{history_address(name)}?hours={number}").props(
                        'aria-current="page"' if number == period else ""
                    )
            ui.label(f"From AWS's own records and the rows of requests, in at most {MAX_CALLS:,} calls.")
            texts = Texts()
            with ui.row().classes("items-center"):
                limit = ui.number("Limit", value=1, min=1, precision=0).props("dense")
                actions.look("What if?", lambda: next_step("what-if", name, limit=f"{limit.value or 1:.0f}"))
            timeline = ui.html(sanitize=False).classes("history w-full")
            checks = data_table("Checks", _CHECKS, "id")

        def show(data: Mapping[str, Any]) -> None:
            texts.show(_texts(data))
            # It escapes the texts of senders.
            timeline.set_content(timeline_svg(history_timeline(data["history"], name)))
            set_rows(checks, [{key: each[key] for key in _CHECKS} for each in data["checks"]])

        frame.follow(lambda: reader.audit(name, period), show, every=None)


def history_address(name: str) -> str:
    """The address of a process's history."""
    return process_address(name).replace("process/", "history/", 1)


def _texts(data: Mapping[str, Any]) -> Iterator[str]:
    if figures := data["figures"]:
        executions = figures["executions"].items()
        yield ", ".join(f"{number:,} {status}" for status, number in executions) or "No execution in this period."
        if (wait := figures["wait"])["count"]:
            yield f"Wait: p50 {wait['p50']:,.1f} s, p99 {wait['p99']:,.1f} s (of {wait['count']:,})"
        if figures["utilization"] is not None:
            yield f"Slots used: {figures['utilization']:.0%}"
    yield from (f"Not read: {each}" for each in data["not_read"])
