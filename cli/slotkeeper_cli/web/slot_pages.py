"""The pages of slots: all processes, and one process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from nicegui import ui

from slotkeeper.next_step import next_step
from slotkeeper.slots.process import Process
from slotkeeper_cli.conditions import as_dict, waited, waiting_requests
from slotkeeper_cli.formatting import duration
from slotkeeper_cli.holders import in_use_text, lease_text
from slotkeeper_cli.slot_control import repair_texts
from slotkeeper_cli.target_checks import target_text
from slotkeeper_cli.web.actions import Actions
from slotkeeper_cli.web.frame import Frame, Texts, data_table, process_address, request_address, set_rows
from slotkeeper_cli.web.history_page import history_address
from slotkeeper_cli.web.reading import Overview, StackReader, Timeline, alarms_ringing
from slotkeeper_cli.web.timeline import SPARK, slots_chart, spark, update_chart

_PROCESSES = {
    "name": "Process",
    "recent": "Slots in use lately",
    "in_use": ">In use",
    "limit": ">Limit",
    "holders": ">Holders",
    "waiting": "Waiting, the first of each priority",
    "state": "State",
    "target": "Runs",
}
_HOLDERS = {
    "request": "Request or lease",
    "state": "State",
    "age": ">For",
    "weight": ">Weight",
    "execution": "Execution",
    "work": "Work",
}
_WAITING = {"request": "Request", "priority": "Priority", "weight": ">Weight", "waited": ">For", "because": "Because"}


def declare(reader: StackReader, actions: Actions) -> None:
    """Declare the pages."""

    @ui.page("/")
    def overview() -> None:
        with Frame(reader, "Processes", actions.writes) as frame:
            problems = Texts("text-negative")
            table = data_table("Processes", _PROCESSES, "name", link="name")
            table.add_slot("body-cell-recent", SPARK)
            queues = data_table("Queues", {"queue": "Queue", "visible": ">Visible", "hidden": ">Hidden"}, "queue")

        def show(data: Overview) -> None:
            problems.show(_problems(data))
            set_rows(table, [_process_row(each, reader.timelines[each.name]) for each in data.processes])
            counts = data.queues.items()
            rows = [{"queue": name, "visible": each["visible"], "hidden": each["in_flight"]} for name, each in counts]
            set_rows(queues, rows)

        frame.follow(reader.overview, show)

    @ui.page("/process/{name}")
    def process(name: str) -> None:
        with Frame(reader, name, actions.writes) as frame:
            facts = Texts()
            ui.link("History: who held and who waited in the last hours", history_address(name))
            with ui.row().classes("items-center"):
                actions.button("Pause", lambda: next_step("process pause", name), "pause")
                actions.button("Resume", lambda: next_step("process resume", name), "play_arrow")
                limit = ui.number("Limit", min=0, precision=0).props("dense")
                actions.button(
                    "Set limit", lambda: next_step("process set-limit", name, f"{limit.value or 0:.0f}"), "tune"
                )
            chart = slots_chart(name)
            waiting = data_table("Waiting, the first of each priority", _WAITING, "request", link="request")
            holders = data_table("Holders", _HOLDERS, "execution", link="request")

        def show(data: dict[str, Any]) -> None:
            (shown,) = data["processes"]
            facts.show(_facts(data, shown))
            if limit.value is None:
                limit.set_value(shown["slot_limit"])
            update_chart(chart, reader.timelines[name])
            set_rows(waiting, [_waiting_row(name, each) for each in shown["waiting"]])
            set_rows(holders, [_holder_row(name, each) for each in shown["holders"]])

        frame.follow(lambda: reader.process(name), show)


def _problems(data: Overview) -> Iterator[str]:
    """What is out of order, and what could not be read."""
    yield from (f"Malformed: {text}" for text in repair_texts(data.malformed))
    yield from (
        f"{each['LogicalId']} is in ALARM: {each.get('StateReason', '')}" for each in alarms_ringing(data.alarms)
    )
    yield from (f"Not read: {text}" for text in data.not_read)
    if not data.processes and not data.malformed:
        yield "There are no processes. Add one with: slotkeeper process add"


def _process_row(process: Process, timeline: Timeline) -> dict[str, Any]:
    now = time.time()
    waiting = [as_dict(process, each, now) for each in waiting_requests(process, now)]
    states = ["paused"] * process.paused + ["drifted"] * process.has_drifted
    return {
        "name": process.name,
        "href": process_address(process.name),
        **spark(timeline, now),
        "in_use": process.slots_in_use,
        "limit": process.slot_limit,
        "holders": len(process.holders),
        "waiting": "; ".join(f"{each['priority']}: {waited(each)}" for each in waiting),
        "state": ", ".join(states) or "active",
        "target": target_text(process.target),
    }


def _facts(data: Mapping[str, Any], shown: Mapping[str, Any]) -> Iterator[str]:
    yield f"{in_use_text(shown)}. Its requests run {target_text(shown['target'])}."
    if shown["rate"]:
        yield f"At most {shown['rate']} start."
    if shown["paused"]:
        yield f"PAUSED: no request is admitted until {next_step('process resume', shown['name'])}."
    if shown["has_drifted"]:
        yield f"DRIFTED: the counter differs from the holders. Run {next_step('stack reconcile', shown['name'])}."
    yield from (f"RequestQueue: {each['text']}" for each in data["event_source"])
    yield from (f"Not read: {each['source']}: {each['why']}" for each in data["not_read"])


def _waiting_row(process: str, waiting: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "request": waiting["request_id"],
        "href": request_address(waiting["request_id"], process),
        "priority": waiting["priority"],
        "weight": waiting["weight"],
        "waited": duration(waiting["waited_seconds"]),
        "because": waiting["because"],
    }


def _holder_row(process: str, holder: Mapping[str, Any]) -> dict[str, Any]:
    is_lease = holder["state"] == "LEASED"
    work = None if is_lease else holder["glue_run"] or holder["child"]
    request_id = holder["execution"] if is_lease else holder["request_id"]
    state = f"{holder['state']}, {lease_text(holder)}" if is_lease else holder["state"]
    if holder["has_caller"]:
        state += ", a caller waits for it"
    if not is_lease and holder["execution_status"] not in ("RUNNING", "PENDING_REDRIVE"):
        state += f", execution {holder['execution_status']}"
    return {
        "request": request_id or "request id unknown",
        "href": request_address(request_id or holder["execution"], process),
        "state": state,
        "age": duration(holder["age_seconds"]),
        "weight": holder["weight"],
        "execution": "" if is_lease else holder["execution"],
        "work": f"{work['state']} {work['id']}" if work else "",
    }
