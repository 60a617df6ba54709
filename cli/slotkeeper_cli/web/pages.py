"""The pages: their addresses, and how the templates receive what was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from nicegui import app, ui
from nicegui.client import Client
from starlette.requests import Request
from starlette.responses import Response

from slotkeeper.next_step import NextStep, next_step
from slotkeeper.retry.downstream.health import State
from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.targets import kind_of
from slotkeeper_cli.errors import CommandRefused
from slotkeeper_cli.formatting import count, duration, period_seconds, seconds
from slotkeeper_cli.holders import is_dead, lease_text
from slotkeeper_cli.key_use import MAX_SHOWN, rest_text
from slotkeeper_cli.look.pages import kind
from slotkeeper_cli.web.actions import Fields
from slotkeeper_cli.web.frame import Console, PagePart, View

if TYPE_CHECKING:
    from slotkeeper_cli.web.reading import PageReadings

_FAILURE_PERIODS = ("24h", "7d", "30d")
_HISTORY_PERIODS = {1: "1 hour", 3: "3 hours", 12: "12 hours", 24: "24 hours"}
_SHOWN_IDLE = 200
_SPARKS = 12  # processes of the first page whose last hour is read


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
            PagePart("trouble.html", readings.overview(), partial(_trouble, process=name)),
            PagePart("process.html", reading, _process),
            PagePart("timeline.html", readings.timeline(name)),
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
        parts = [period, PagePart("history.html", readings.history(name, hours))]
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
        ("Dead letters", "/dead-letters", PagePart("dead_letters.html", readings.dead_letters())),
        ("Alarms", "/alarms", PagePart("alarms.html", readings.alarms())),
        ("Doctor", "/doctor", PagePart("doctor.html", readings.doctor())),
        ("Retries", "/retries", PagePart("downstreams.html", readings.downstreams(), _downstreams)),
        ("Token", "/token", PagePart("token.html", readings.token())),
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


# ---------------------------------------------------------------------------------------------------------- processes


def _sparks(console: Console, readings: PageReadings, names: Sequence[str]) -> Mapping[str, str]:
    """The small pictures that were read; the others are read meanwhile, and do not delay the page."""
    known = {name: console.readings.soon(readings.spark(name)) for name in names[:_SPARKS]}
    return {name: each.data["svg"] for name, each in known.items() if each}


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
    numbers = [each["queued"] for each in every]
    is_part = None in numbers or any(each["is_cut"] for each in every)
    queued = "at least " * is_part + f"{sum(filter(None, numbers)):,}"
    running = f"{sum(len(each['holders']) for each in every):,}"
    return {
        **data,
        "all": len(every),
        "states": sorted({each["state"] for each in every}),
        "paged": paged,
        "sparks": sparks([each["name"] for each in paged["rows"] if each["slot_limit"] is not None]),
        "idle": idle[:_SHOWN_IDLE],
        "idle_number": len(idle),
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
    **{"slot_limit": None, "slots_in_use": 0, "holders": [], "target": "", "queued": None, "is_cut": False},
    **{"oldest": None, "rate": None, "state": "malformed", "kind": "bad", "trouble": "bad"},
}


def _row(process: Mapping[str, Any], trouble: str, now: float) -> dict[str, Any]:
    """A process of `status` as its row shows it. `trouble`: the severity of what needs attention; empty for nothing."""
    queue = process["queue"]
    oldest, (state, state_kind) = queue["oldest_seconds"], _state(process)
    return {
        **process,
        "queued": queue["queued"],
        "is_cut": queue["is_cut"],
        "oldest": None if oldest is None else now - oldest,
        "state": state,
        "kind": state_kind,
        "trouble": trouble,
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


def _limit(fields: Fields, least: int) -> str:
    """The limit that a form sends. Raises CommandRefused if it is none."""
    (given,) = fields.get("limit") or [""]
    if not (given.isdecimal() and len(given) < 9 and int(given) >= least):
        raise CommandRefused(f"The limit must be a whole number from {least} on")
    return given


def _trouble(data: Mapping[str, Any], _view: View, process: str) -> Mapping[str, Any]:
    """What needs attention of one process: of one that was removed or is malformed, the whole content of its page."""
    return {"attention": [each for each in data["attention"] if each["process"] == process]}


def _process(data: Mapping[str, Any], _view: View) -> Mapping[str, Any]:
    process = data["process"]

    def set_limit(fields: Fields) -> NextStep:
        return next_step("process set-limit", process["name"], _limit(fields, 0))

    keys = process["keys"]
    of_keys = {"keys": keys[:MAX_SHOWN], "rest": rest_text(keys, MAX_SHOWN, process["queue"]["is_cut"])}
    return {**data, "state": _state(process), "set_limit": set_limit, **of_keys}


def _period(data: Mapping[str, Any], _view: View, hours: int) -> Mapping[str, Any]:
    def what_if(fields: Fields) -> NextStep:
        return next_step("what-if", data["process"]["name"], limit=_limit(fields, 1), since=f"{hours}h")

    return {**data, "periods": _HISTORY_PERIODS, "hours": hours, "what_if": what_if}


def _queue(data: Mapping[str, Any], view: View) -> Mapping[str, Any]:
    process = data["process"]
    name, wanted = process["name"], view.query.get("q", "").casefold()
    texts = ((each, (each["request_id"], each.get("key") or "")) for each in data["requests"])
    requests = [each for each, of in texts if any(wanted in text.casefold() for text in of)]
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
        "keyed": any(each.get("key") for each in [*data["requests"], *process["holders"]]),
        **_empty_queue(process, data["event_source"]),
        "cancel": cancel,
        "holders": [_holder(each, name) for each in process["holders"]],
    }


def _empty_queue(process: Mapping[str, Any], event_source: Sequence[Any]) -> Mapping[str, Any]:
    """The text for an empty queue, and the command that sends a request, if the process runs any."""
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


def _holder(holder: Mapping[str, Any], process: str) -> Mapping[str, Any]:
    is_lease = holder["state"] == "LEASED"
    state = "expired" if is_lease else f"execution {holder.get('execution_status') or 'not found'}"
    dead = state if is_dead(holder) else ""
    stops = not (is_lease or dead) and holder["request_id"]
    return {
        **holder,
        "dead": dead,
        "lease": lease_text(holder) if is_lease else "",
        "noun": "" if is_lease else kind_of(holder["target"]).work_noun,
        "work": None if is_lease else holder["glue_run"] or holder["child"],
        "label": "Stop" if stops else "Release",
        "step": next_step("request cancel", holder["request_id"], process=process, stop=True)
        if stops
        else next_step("holder release", holder["execution"]),
    }


# ----------------------------------------------------------------------------------------------------------- requests


def _request(data: Mapping[str, Any], _view: View, given: str) -> Mapping[str, Any]:
    found = [{**each, "life": _life(each.get("attempts", []))} for each in data["found"]]
    return {**data, "given": given, "found": found}


def _life(attempts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The attempts of a request on one line of time: waits, runs and ends. Places are in percent."""
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
    given = {"process": process} if process else view.query
    wanted = given.get("q", "").casefold()
    found = [each for each in data["groups"] if wanted in each["reason"].casefold()]
    found = [each for each in found if all(given.get(name, "") in ("", each[name]) for name in ("process", "code"))]
    number = sum(each["requests"] for each in found)
    heading = f"{count(number, 'failure')} of {count(len(found), 'cause')}" if number else "Failures"
    return {
        **data,
        "heading": f"Failures of the last 24 hours: {number:,}" if process else heading,
        "process": process,
        "none": _no_failure(is_filtered=any(given.get(name) for name in ("process", "code", "q")), data=data),
        "period": period,
        "periods": _FAILURE_PERIODS,
        "paged": view.page_of(found),
    }


def _no_failure(*, is_filtered: bool, data: Mapping[str, Any]) -> str:
    """The text of the page without failures."""
    read = " in what could be read" * bool(data["not_read"])
    if is_filtered:
        return f"No failure matches{read}. Failures that were redriven or discarded are not listed."
    return f"Nothing has failed in this period{read}."


# ------------------------------------------------------------------------------------------------------------- others


def _downstreams(data: Mapping[str, Any], _view: View) -> Mapping[str, Any]:
    def shown(each: Mapping[str, Any]) -> Mapping[str, Any]:
        verb = "open" if each["state"] == State.CLOSED else "close"
        return {**each, "verb": verb, "step": partial(_breaker_step, verb, each["downstream"])}

    return {**data, "downstreams": [shown(each) for each in data["downstreams"]]}


def _breaker_step(verb: str, downstream: str, fields: Fields) -> NextStep:
    why = "".join(fields.get("why", ())).strip()
    if not why:
        raise CommandRefused("Say why, for the list of changes. Nothing was changed.")
    return next_step(f"retry breaker {verb}", downstream, why=why)
