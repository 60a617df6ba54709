"""The pages of slots: all processes, and one process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from nicegui import ui

from slotkeeper.next_step import NextStep, next_step
from slotkeeper.slots.process import Process
from slotkeeper_cli.formatting import duration
from slotkeeper_cli.holders import in_use_text, lease_text
from slotkeeper_cli.process_queue import ProcessQueue, waited
from slotkeeper_cli.slot_control import repair_texts
from slotkeeper_cli.target_checks import target_text
from slotkeeper_cli.web.actions import Actions
from slotkeeper_cli.web.frame import Frame, Texts, data_table, process_address, request_address, set_rows
from slotkeeper_cli.web.history_page import history_address
from slotkeeper_cli.web.reading import MAX_QUEUED, Overview, StackReader, Timeline, alarms_ringing
from slotkeeper_cli.web.timeline import SPARK, slots_chart, spark, update_chart

_PROCESSES = {
    "name": "Process",
    "recent": "Slots in use lately",
    "in_use": ">In use",
    "limit": ">Limit",
    "holders": ">Holders",
    "queued": ">Queued",
    "next": "Next to start",
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
_QUEUE = {
    "position": ">Position",
    "request": "Request",
    "priority": "Priority",
    "weight": ">Weight",
    "age": ">Age",
    "because": "Because",
}


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
            set_rows(table, [_process_row(each, data, reader.timelines[each.name]) for each in data.processes])
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
            queue = data_table(f"Queue, the first {MAX_QUEUED}", _QUEUE, "execution", link="request")
            queue.props('selection="multiple"')

            def cancel() -> NextStep:
                return next_step("request cancel", *(row["request"] for row in queue.selected), process=name)

            actions.button("Cancel requests", cancel, "cancel").bind_enabled_from(queue, "selected", backward=bool)
            holders = data_table("Holders", _HOLDERS, "execution", link="request")

        def show(data: dict[str, Any]) -> None:
            (shown,) = data["processes"]
            facts.show(_facts(data, shown))
            if limit.value is None:
                limit.set_value(shown["slot_limit"])
            update_chart(chart, reader.timelines[name])
            set_rows(queue, [_queue_row(name, each) for each in data["requests"]])
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


def _process_row(process: Process, data: Overview, timeline: Timeline) -> dict[str, Any]:
    now, queue = time.time(), data.waiting.get(process.name)
    states = ["paused"] * process.paused + ["drifted"] * process.has_drifted
    return {
        "name": process.name,
        "href": process_address(process.name),
        **spark(timeline, now),
        "in_use": process.slots_in_use,
        "limit": process.slot_limit,
        "holders": len(process.holders),
        "queued": queue.number if queue else "not read",
        "next": _next(queue) if queue else "",
        "state": ", ".join(states) or "active",
        "target": target_text(process.target),
    }


def _next(queue: ProcessQueue) -> str:
    first = next((each.as_dict(queue.now) for each in queue.requests if each.position == 1), None)
    return f"{waited(first)}: {first['because']}" if first else ""


def _facts(data: Mapping[str, Any], shown: Mapping[str, Any]) -> Iterator[str]:
    yield f"{in_use_text(shown)}. Its requests run {target_text(shown['target'])}."
    if shown["rate"]:
        yield f"At most {shown['rate']} start."
    if shown["paused"]:
        yield f"PAUSED: no request is admitted until {next_step('process resume', shown['name'])}."
    if shown["has_drifted"]:
        yield f"DRIFTED: the counter differs from the holders. Run {next_step('stack reconcile', shown['name'])}."
    yield from (each["text"] for each in data["event_source"])
    yield from (f"Not read: {each['source']}: {each['why']}" for each in data["not_read"])


def _queue_row(process: str, queued: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "execution": queued["execution"],
        "position": queued["position"] or "",
        "request": queued["request_id"],
        "href": request_address(queued["request_id"], process),
        "priority": queued["priority"],
        "weight": queued["weight"],
        "age": duration(queued["age_seconds"]),
        "because": queued["because"],
    }


def _holder_row(process: str, holder: Mapping[str, Any]) -> dict[str, Any]:
    is_lease = holder["state"] == "LEASED"
    work = None if is_lease else holder["glue_run"] or holder["child"]
    request_id = holder["execution"] if is_lease else holder["request_id"]
    state = f"{holder['state']}, {lease_text(holder)}" if is_lease else holder["state"]
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
