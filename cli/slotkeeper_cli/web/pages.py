"""The pages: their addresses, and how the templates receive what was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from nicegui import app, ui
from nicegui.client import Client
from starlette.requests import Request
from starlette.responses import Response

from slotkeeper.next_step import NextStep, next_step
from slotkeeper.retry.downstream.health import State
from slotkeeper.settings import CLOCK_SKEW_SECONDS, NO_TARGET
from slotkeeper.slots.executions import CLOSED_STATUSES
from slotkeeper.slots.targets import kind_of
from slotkeeper_cli.doctor.alarm_checks import first_step
from slotkeeper_cli.errors import CommandRefused
from slotkeeper_cli.formatting import count, duration, period_seconds, seconds
from slotkeeper_cli.holders import lease_text
from slotkeeper_cli.look.pages import kind
from slotkeeper_cli.target_checks import target_text
from slotkeeper_cli.web.actions import Fields
from slotkeeper_cli.web.frame import Console, PagePart, View, history_address

if TYPE_CHECKING:
    from slotkeeper_cli.web.reading import PageReadings

_FAILURE_PERIODS = ("24h", "7d", "30d")
_HISTORY_PERIODS = {1: "1 hour", 3: "3 hours", 12: "12 hours", 24: "24 hours"}
_SHOWN_DEAD_LETTERS, _SHOWN_IDLE = 100, 200
_SPARKS = 12  # processes of the first page whose last hour is read
_CHECK_KINDS = {"holds": "ok", "fails": "bad", "not shown": "warn"}
# Facts of an attempt that its timeline or the answer shows.
_SHOWN = {"attempt", "state", "cause", "sent", "started", "ended", "published", "timeline"}


def declare(console: Console, readings: PageReadings) -> None:
    """Declare the pages."""

    @ui.page("/")
    def overview(request: Request) -> None:
        sparks = partial(_sparks, console, readings)
        part = PagePart("overview.html", readings.overview(), lambda data, view: _overview(data, view, sparks))
        console.page("Processes", request, [part])

    @ui.page("/process/{name}")
    def process(request: Request, name: str) -> None:
        reading = readings.process(name)
        failures = PagePart("failures.html", readings.failures(86400.0), partial(_failures, process=name, period="24h"))
        parts = [
            PagePart("process.html", reading, _process),
            PagePart("timeline.html", readings.timeline(name), _drawn),
            PagePart("queue.html", reading, _queue),
            failures,
        ]
        console.page(name, request, parts, "Processes")

    @ui.page("/history/{name}")
    def history(request: Request, name: str) -> None:
        given = request.query_params.get("hours", "")
        # A number of the address is not trusted: a long period makes many calls.
        hours = int(given) if given in map(str, _HISTORY_PERIODS) else 3
        period = PagePart("period.html", readings.process(name), partial(_period, hours=hours))
        parts = [period, PagePart("history.html", readings.history(name, hours), _history)]
        console.page(f"History of {name}", request, parts, "Processes")

    @ui.page("/request")
    def request_page(request: Request) -> None:
        given, process = request.query_params.get("id", ""), request.query_params.get("process") or None
        # A link has the whole id, which may begin or end with a space; an operator's copy may have one too many.
        given = given if process else given.strip()
        reading = readings.request(given, process)
        part = PagePart("request.html", reading, partial(_request, given=given))
        if given:
            console.page(f"Request {given}", request, [part], "Processes")
        else:
            console.page("Which request?", request, [], "Processes", also="missing.html")

    @ui.page("/failures")
    def failures(request: Request) -> None:
        given = request.query_params.get("period", "")
        period = given if given in _FAILURE_PERIODS else _FAILURE_PERIODS[-1]
        reading = readings.failures(period_seconds(period) or 0.0)
        console.page("Failures", request, [PagePart("failures.html", reading, partial(_failures, period=period))])

    for title, path, part in (
        ("Dead letters", "/dead-letters", PagePart("dead_letters.html", readings.dead_letters(), _dead_letters)),
        ("Alarms", "/alarms", PagePart("alarms.html", readings.alarms(), _alarms)),
        ("Doctor", "/doctor", PagePart("doctor.html", readings.doctor(), _doctor)),
        ("Retries", "/retries", PagePart("downstreams.html", readings.downstreams(), _downstreams)),
        ("Token", "/token", PagePart("token.html", readings.token(), _token)),
    ):
        ui.page(path)(_of_one_part(console, title, part))

    @app.exception_handler(404)
    async def missing(request: Request, _error: Exception) -> Response:
        with Client(ui.page(""), request=request) as client:
            console.page("There is no such page", request, [], "none", also="missing.html")
        return client.build_response(request, 404)


def _of_one_part(console: Console, title: str, part: PagePart) -> Any:
    def page(request: Request) -> None:
        console.page(title, request, [part])

    return page


def _drawn(data: Mapping[str, Any], _view: View) -> Mapping[str, Any]:
    """The data of a picture, in which timeline_svg has escaped the texts of senders."""
    return {**data, "svg": Markup(data["svg"])}  # noqa: S704


# ---------------------------------------------------------------------------------------------------------- processes


def _sparks(console: Console, readings: PageReadings, names: Sequence[str]) -> Mapping[str, str]:
    """The small pictures that were read; the others are read meanwhile, and do not delay the page."""
    known = {name: console.readings.soon(readings.spark(name)) for name in names[:_SPARKS]}
    return {name: Markup(each.data["svg"]) for name, each in known.items() if each}  # noqa: S704 - spark_svg escapes


def _overview(data: Mapping[str, Any], view: View, sparks: Any) -> Mapping[str, Any]:
    troubles: dict[str, str] = {}
    for each in reversed(data["attention"]):  # the worst comes first
        troubles[each["process"]] = each["severity"]
    now = seconds(data["at"])
    every = [_row(each, troubles.get(each["name"], ""), now) for each in data["processes"]]
    every += [{**_MALFORMED, "name": name} for name in data["malformed"]]
    every.sort(key=lambda each: (_ORDER.index(each["trouble"] or each["kind"]), -(each["queued"] or 0), each["name"]))
    wanted, state = view.query.get("q", "").casefold(), view.query.get("state", "")
    found = [each for each in every if wanted in each["name"].casefold() and state in ("", each["state"])]
    idle = [] if wanted or state else [each for each in found if each["state"] == "idle" and not each["trouble"]]
    paged = view.page_of([each for each in found if each not in idle])
    drawn = sparks([each["name"] for each in paged["rows"] if each["slot_limit"] is not None])
    numbers = [each["queued"] for each in every]
    is_part = None in numbers or any(each["is_cut"] for each in every)
    queued = "at least " * is_part + f"{sum(filter(None, numbers)):,}"
    running = f"{sum(len(each['weights']) for each in every):,}"
    return {
        **data,
        "all": len(every),
        "states": sorted({each["state"] for each in every}),
        "paged": {**paged, "rows": [{**each, "spark": drawn.get(each["name"], "")} for each in paged["rows"]]},
        "idle": idle[:_SHOWN_IDLE],
        "idle_number": len(idle),
        "add": next_step("process add"),
        "tiles": [
            _tile("queued", queued, "./?state=waiting#processes", "wait"),
            _tile("hold slots", running, "./#processes", "busy"),
            _tile("failed in 24 h", data["failed"], "failures?period=24h", "bad"),
            _tile("ringing alarms", data["ringing"], "alarms", "bad"),
        ],
    }


def _tile(label: str, value: Any, href: str, kind: str) -> dict[str, Any]:
    """A number that leads to its page. None: it could not be read."""
    shown = "not read" if value is None else str(value)
    return {"label": label, "value": shown, "href": href, "kind": "warn" if value is None else kind * (shown != "0")}


_ORDER = ("bad", "warn", "wait", "busy", "ok", "off")
_MALFORMED: Mapping[str, Any] = {
    **{"slot_limit": None, "slots_in_use": 0, "weights": [], "runs": "", "queued": None, "is_cut": False},
    **{"oldest": None, "rate": None, "state": "malformed", "kind": "bad", "trouble": "bad", "spark": ""},
}


def _row(process: Mapping[str, Any], trouble: str, now: float) -> dict[str, Any]:
    """A process of `status` as its row shows it. `trouble`: the severity of what needs attention; empty for nothing."""
    queue = process["queue"]
    oldest, (state, state_kind) = queue["oldest_seconds"], _state(process)
    return {
        **process,
        "weights": [each["weight"] for each in process["holders"]],
        "queued": queue["queued"],
        "is_cut": queue["is_cut"],
        "oldest": None if oldest is None else now - oldest,
        "runs": target_text(process["target"]),
        "state": state,
        "kind": state_kind,
        "trouble": trouble,
        "spark": "",
    }


def _state(process: Mapping[str, Any]) -> tuple[str, str]:
    """The word for a process, and its kind. Without slots or in a pause it is never shown as active."""
    in_use, limit, queued = process["slots_in_use"], process["slot_limit"], process["queue"]["queued"]
    if process["has_drifted"]:
        return "drifted", "bad"
    if process["paused"] or limit == 0:
        return "paused" if process["paused"] else "no slots", "warn" if queued else "off"
    if in_use > limit:
        return "over its limit", "warn"
    if in_use == limit:
        return "full", "busy"
    if queued:
        return "waiting", "wait"
    if in_use:
        return "running", "ok"
    return ("idle", "off") if queued == 0 else ("queue not read", "warn")


def _process(data: Mapping[str, Any], view: View) -> Mapping[str, Any]:
    process = data["process"]
    name, queued = process["name"], len(data["requests"])
    weights = [each["weight"] for each in process["holders"]]

    def set_limit(fields: Fields) -> NextStep:
        (given,) = fields.get("limit") or [""]
        if not (given.isdecimal() and len(given) < 9):
            raise CommandRefused("The limit must be a whole number from 0 on")
        return next_step("process set-limit", name, given)

    verb = "resume" if process["paused"] else "pause"
    return {
        **data,
        "runs": target_text(process["target"]),
        "weights": weights,
        "chips": list(_chips(process, queued)),
        "facts": list(_facts(data)),
        "history": history_address(name),
        "set_limit": view.offer("Set limit", set_limit),
        "pause": view.offer(verb.capitalize(), next_step(f"process {verb}", name)),
        "why": view.offer("Why would a new request not start?", next_step("explain", process=name), only_reads=True),
    }


def _chips(process: Mapping[str, Any], queued: int) -> Iterator[tuple[str, str]]:
    yield _state(process)
    if process["paused"] and process["slot_limit"] == 0:
        yield "no slots", "warn"
    if queued:
        yield f"{queued:,} queued", "wait"


def _facts(data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What keeps requests of a process from starting, and the command that ends it."""
    process = data["process"]
    name, queue = process["name"], process["queue"]
    if process["has_drifted"]:
        held = sum(each["weight"] for each in process["holders"])
        text = f"The counter is {process['slots_in_use']}, and the holders need {held}."
        yield {"kind": "bad", "text": text, "command": next_step("stack reconcile", name)}
    for each in data["event_source"]:
        yield {"kind": "bad", "text": each["text"], "command": each.get("ends_by")}
    first = [queue["first"]] if queue["first"] else []
    for request in [*first, *queue["blocked"]]:
        for each in request["reasons"][:1]:
            yield {"kind": "wait", "text": f"{request['request_id']}: {each['text']}", "command": each.get("ends_by")}
    if process["paused"] and not first:
        yield {"kind": "warn", "text": "No request starts in a pause.", "command": next_step("process resume", name)}


def _queue(data: Mapping[str, Any], view: View) -> Mapping[str, Any]:
    process = data["process"]
    name, wanted = process["name"], view.query.get("q", "").casefold()
    requests = [each for each in data["requests"] if wanted in each["request_id"].casefold()]
    paged = view.page_of(requests)
    offered = {each["execution"] for each in paged["rows"]}

    def cancel(fields: Fields) -> NextStep:
        chosen = [each for each in fields.get("execution", ()) if each in offered]
        if not chosen:
            raise CommandRefused("No queued request is selected. Nothing was changed.")
        return next_step("request cancel", *chosen, process=name)

    return {
        "name": name,
        "queued": "more than " * data["is_cut"] + f"{data['queued']:,}",
        "all": len(data["requests"]),
        "paged": paged,
        **_empty_queue(process, data["event_source"]),
        "cancel": view.offer("Cancel requests", cancel),
        "cancel_all": view.offer("Cancel all", next_step("request cancel", process=name, all=True)),
        "holders": [_holder(each, name, view) for each in process["holders"]],
    }


def _empty_queue(process: Mapping[str, Any], event_source: Sequence[Any]) -> Mapping[str, Any]:
    """What the page says of an empty queue, and the command that sends a request, if the process runs any."""
    if process["target"] == NO_TARGET:
        return {"none": "The process is for leases only: a request of it is rejected.", "submit": None}
    limit, weight = process["slot_limit"], process["default_weight"]
    if event_source:
        starts = "when functions receive messages again"
    elif process["paused"]:
        starts = "after the pause"
    elif weight > limit:
        starts = f"when the limit is {weight} or more"
    elif process["slots_in_use"] + weight > limit:
        starts = "when a slot is free"
    else:
        starts = "when its rate permits it" if process["rate"] else "immediately"
    none = f"No request is queued. One that is sent now starts {starts}."
    return {"none": none, "submit": next_step("request submit", process=process["name"])}


def _holder(holder: Mapping[str, Any], process: str, view: View) -> Mapping[str, Any]:
    is_lease = holder["state"] == "LEASED"
    status = holder.get("execution_status")  # None: it was not read; "": there is no such execution
    is_lost = status == "" and holder["state"] != "RESERVED"  # a reservation comes before its execution
    dead = f"execution {status or 'not found'}" if status in CLOSED_STATUSES or is_lost else ""
    if is_lease and holder["seconds_left"] < -CLOCK_SKEW_SECONDS:
        dead = "expired"
    stops = not (is_lease or dead) and holder["request_id"]
    step = (
        next_step("request cancel", holder["request_id"], process=process, stop=True)
        if stops
        else next_step("holder release", holder["execution"])
    )
    label = "Stop" if stops else "Release"
    return {
        **holder,
        "dead": dead,
        "lease": lease_text(holder) if is_lease else "",
        "noun": "" if is_lease else kind_of(holder["target"]).work_noun,
        "work": None if is_lease else holder["glue_run"] or holder["child"],
        "label": label,
        "key": view.offer(label, step),
    }


# ------------------------------------------------------------------------------------------------------------ history


def _period(data: Mapping[str, Any], view: View, hours: int) -> Mapping[str, Any]:
    process = data["process"]
    name = process["name"]

    def what_if(fields: Fields) -> NextStep:
        (given,) = fields.get("limit") or [""]
        if not (given.isdecimal() and 0 < len(given) < 9):
            raise CommandRefused("The limit must be a whole number from 1 on")
        return next_step("what-if", name, limit=given, since=f"{hours}h")

    return {
        "periods": _HISTORY_PERIODS,
        "hours": hours,
        "name": name,
        "limit": process["slot_limit"] or 1,
        "what_if": view.offer("What if?", what_if, only_reads=True),
    }


def _history(data: Mapping[str, Any], view: View) -> Mapping[str, Any]:
    checks = [{**each, "kind": _CHECK_KINDS.get(each["result"].lower(), "off")} for each in data["checks"]]
    return {**_drawn(data, view), "checks": checks, "tiles": list(_figures(data["figures"] or {}))}


def _figures(figures: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for status, number in figures.get("executions", {}).items():
        yield {"label": status.lower().replace("_", " "), "value": f"{number:,}"}
    if (wait := figures.get("wait")) and wait["count"]:
        yield {
            "label": "wait, median",
            "value": duration(wait["p50"]),
            "note": f"99 of 100 below {duration(wait['p99'])}",
        }
    if figures.get("utilization") is not None:
        yield {"label": "of the slots used", "value": f"{figures['utilization']:.0%}"}


# ----------------------------------------------------------------------------------------------------------- requests


def _request(data: Mapping[str, Any], view: View, given: str) -> Mapping[str, Any]:
    found = [_found(each, view) for each in data["found"]]
    return {**data, "given": given, "found": found, "list": next_step("request list")}


def _found(one: Mapping[str, Any], view: View) -> Mapping[str, Any]:
    """One answer of `explain`: of a request, a lease, or work of the worker."""
    failed = [{**each, "state": "failed"} for each in one.get("history", [])]
    process = one.get("process", "")
    return {
        "holders": [],
        **one,
        "title": f"In {process}" if process else "Work of the worker",
        "process": process,
        "state": one["state"] or "malformed",
        "answer": _sentence(one["answer"]),
        "reasons": one.get("reasons", []) if len(one.get("reasons", [])) > 1 else [],  # one is in the answer
        "expected": (one.get("expected_start") or {}).get("text"),
        "life": _life(one.get("attempts", [])),
        "next": one.get("next", []),
        "attempts": [_attempt(each, view) for each in [*one.get("attempts", []), *failed]],
    }


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _attempt(attempt: Mapping[str, Any], view: View) -> Mapping[str, Any]:
    facts = [
        (name.replace("_", " "), _value(name, value, view))
        for name, value in attempt.items()
        if value and name not in _SHOWN
    ]
    return {"number": attempt["attempt"], "state": attempt["state"], "facts": facts}


def _value(name: str, value: Any, view: View) -> Any:
    """A fact as text, or a link; of work its state and id."""
    # Only of this fact: others, as a reason, contain what senders write. Of a local stack it is no address.
    if name == "link" and value.startswith("https://"):
        return Markup('<a href="{}" target="_blank" rel="noreferrer">in the AWS console</a>').format(value)
    return f"{value['state']} {value['id']}" if isinstance(value, Mapping) else view.timed(str(value))


def _life(attempts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The attempts of a request on one line of time: what each waited, ran and became. Places are in percent."""
    lanes = [(each, each["timeline"]) for each in attempts if each.get("timeline")]
    spans = [
        (number, event["what"], seconds(event["at"]), event["for_seconds"] or 0.0, event["why"])
        for number, (_, events) in enumerate(lanes)
        for event in events
        if event["at"] and event["what"] in ("waited", "started")
    ]
    since = min((at for _, _, at, _, _ in spans), default=0.0)
    length = max(1.0, max((at + lasted for _, _, at, lasted, _ in spans), default=0.0) - since)
    return [
        {
            "number": attempt["attempt"],
            "events": [each for each in events if each["what"] != "waited" or each["why"]],
            "spans": [
                {
                    "kind": "wait" if what == "waited" else kind(attempt["state"]),
                    "text": f"{'waited' if what == 'waited' else 'ran'} {duration(lasted)}" + f": {why}" * bool(why),
                    "left": f"{100 * (at - since) / length:.2f}",
                    "width": f"{100 * lasted / length:.2f}",
                }
                for number, what, at, lasted, why in spans
                if number == lane
            ],
        }
        for lane, (attempt, events) in enumerate(lanes)
    ]


# ----------------------------------------------------------------------------------------------------------- failures


def _failures(data: Mapping[str, Any], view: View, period: str, process: str = "") -> Mapping[str, Any]:
    groups = data["groups"]
    given = view.query if not process else {}
    chosen = {name: process if process and name == "process" else given.get(name, "") for name in ("process", "code")}
    wanted = given.get("q", "").casefold()
    found = [
        each
        for each in groups
        if all(value in ("", each[name]) for name, value in chosen.items()) and wanted in each["reason"].casefold()
    ]
    paged = view.page_of(found)
    number = sum(each["requests"] for each in found)
    heading = f"{count(number, 'failure')} of {count(len(found), 'cause')}" if number else "Failures"
    return {
        **data,
        "heading": f"Failures of the last 24 hours: {number:,}" if process else heading,
        "process": process,
        "none": _no_failure(is_filtered=any(given.get(name) for name in ("process", "code", "q")), data=data),
        "period": period,
        "periods": _FAILURE_PERIODS,
        "processes": sorted({each["process"] for each in groups}),
        "codes": sorted({each["code"] for each in groups}),
        "paged": {**paged, "rows": [_group(each, view, period) for each in paged["rows"]]},
    }


def _no_failure(*, is_filtered: bool, data: Mapping[str, Any]) -> str:
    """What the page says if it has no failure."""
    read = " in what could be read" * bool(data["not_read"])
    if is_filtered:
        return f"No failure matches{read}. Failures that were redriven or discarded are not listed."
    return f"Nothing has failed in this period{read}."


def _group(group: Mapping[str, Any], view: View, period: str) -> Mapping[str, Any]:
    verbs = {"redrive": "Redrive", "discard": "Discard"}
    # Of the period that the page shows: the group may have more failures before it.
    which = partial(next_step, since=period)
    keys = {verb: view.offer(title, which(f"failed {verb}", group["group"])) for verb, title in verbs.items()}
    show = view.offer("Requests of this failure", which("failed show", group["group"]), only_reads=True)
    return {**group, **keys, "show": show}


def _dead_letters(data: Mapping[str, Any], view: View) -> Mapping[str, Any]:
    def keys(queue: str, **which: Any) -> Mapping[str, str]:
        return {
            verb: view.offer(f"{verb.capitalize()} of {queue}", next_step(f"dlq {verb}", queue, **which))
            for verb in ("redrive", "discard")
        }

    def shown(message: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"process": "", **message, **keys(message["queue"], id=message["message_id"])}

    queues = [
        {
            **each,
            "redrive": view.offer(f"Redrive of {each['queue']}", next_step("dlq redrive", each["queue"], all=True)),
            # What is discarded is lost: nothing of a code that the page does not name.
            "discard": view.offer(
                f"Discard of {each['queue']}",
                next_step("dlq discard", each["queue"], code=[code for code, _ in each["codes"]]),
            ),
            "shown": [shown(one) for one in each["messages"][:_SHOWN_DEAD_LETTERS]],
        }
        for each in data["queues"]
    ]
    return {"queues": queues}


# ------------------------------------------------------------------------------------------------------------- others


def _downstreams(data: Mapping[str, Any], view: View) -> Mapping[str, Any]:
    def shown(each: Mapping[str, Any]) -> Mapping[str, Any]:
        is_closed = each["state"] == State.CLOSED
        verb = "open" if is_closed else "close"

        def step(fields: Fields) -> NextStep:
            why = "".join(fields.get("why", ())).strip()
            if not why:
                raise CommandRefused("Say why, for the list of changes. Nothing was changed.")
            return next_step(f"retry breaker {verb}", each["downstream"], why=why)

        key = view.offer(f"{verb.capitalize()} breaker of {each['downstream']}", step)
        nothing = {"since": None, "failures": None, "permitted_callers": None, "allowed_retries": None}
        return {
            **nothing,
            **each,
            "kind": "ok" if is_closed else "bad",
            "key": key,
            "label": f"{verb.capitalize()} breaker",
        }

    waiting = view.offer("Waiting retries", next_step("retry list"), only_reads=True)
    return {**data, "downstreams": [shown(each) for each in data["downstreams"]], "waiting": waiting}


def _token(data: Mapping[str, Any], view: View) -> Mapping[str, Any]:
    stored = data["stored"]
    return {
        **data,
        "word": "stored" if stored else "removed",
        "kind": "ok" if stored else "warn",
        "invalidate": view.offer("Invalidate", next_step("token invalidate")),
    }


def _alarms(data: Mapping[str, Any], _view: View) -> Mapping[str, Any]:
    shown = [
        {
            "name": each["LogicalId"],
            "state": each["StateValue"],
            "since": each["StateUpdatedTimestamp"].timestamp() if each.get("StateUpdatedTimestamp") else None,
            "reason": each.get("StateReason", ""),
            "about": each.get("AlarmDescription", "").partition(" First step: ")[0],
            **dict(zip(("step", "command"), first_step(each), strict=True)),
        }
        for each in sorted(data["alarms"], key=lambda each: (each["StateValue"] == "OK", each["LogicalId"]))
    ]
    ringing = [each for each in shown if each["state"] == "ALARM"]
    return {"ringing": ringing, "others": [each for each in shown if each not in ringing]}


def _doctor(data: Mapping[str, Any], _view: View) -> Mapping[str, Any]:
    findings = [{**one, "check": each["check"]} for each in data["checks"] for one in each["findings"]]
    findings.sort(key=lambda each: each["severity"] != "bad")
    fine = [each for each in data["checks"] if not each["findings"]]
    problems = sum(each["severity"] == "bad" for each in findings)
    tiles = [
        {"label": "problems", "value": problems, "kind": "bad" if problems else "ok"},
        {"label": "warnings", "value": len(findings) - problems, "kind": "warn" if len(findings) > problems else "ok"},
        {"label": "checks ok", "value": sum(each["level"] == "ok" for each in fine), "kind": "ok"},
    ]
    return {"findings": findings, "fine": fine, "tiles": tiles}
