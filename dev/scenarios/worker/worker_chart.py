"""The chart of `make run-worker`, drawn from its report alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from dev.emulator.live_view import counted
from slotkeeper_cli.audit import chart
from slotkeeper_cli.audit.chart import Bar, Panel, Point

from .worker_mix import KINDS

CALLS = {  # answer: colour, meaning
    "200": (chart.BLUE, "answered"),
    "gone": (chart.VERMILLION, "too slow, given up"),
    "503": (chart.AMBER, "503"),
    "500": (chart.ORANGE, "500 InternalError"),
    "dropped": (chart.INK, "connection dropped"),
    "404": (chart.GREY, "404, no such input"),
    "None": (chart.GREY, "not ended"),
}
OTHER = (chart.GREY, "other answers")
ENDS = {"succeeded": (chart.GREEN, "published", "o"), "dead_lettered": (chart.VERMILLION, "dead-lettered", "x")}
STATES = {
    "CLOSED": (chart.GREEN, "breaker closed"),
    "HALF_OPEN": (chart.AMBER, "probe under way"),
    "OPEN": (chart.VERMILLION, "breaker open"),
}
OUTAGE = (chart.LIGHT, "outage of the downstream")


def draw(report: Mapping[str, Any], path: Path) -> None:
    """The callers, the breaker, the calls by answer, the backlog, and each request's calls and end, by kind."""
    end, outage = report["total_seconds"], report["outage"]
    panels = [_callers(report), *_health(report), _answers(report), _requests(report)]
    if outage:
        shade = chart.span(outage["began"], outage["ended"], *OUTAGE)
        panels = [replace(panel, draws=[shade, *panel.draws]) for panel in panels]
    chart.draw(path, "Slotkeeper: the worker", "seconds since the first request was sent", end, panels)


def _callers(report: Mapping[str, Any]) -> Panel:
    end, limit, most = report["total_seconds"], report["parameters"]["workers"], report["most_callers"]
    panel = chart.limit_panel(
        f"At most {most} concurrent callers: {'within' if most <= limit else 'ABOVE'} the limit of {limit}",
        "callers",
        [(bar.start, bar.end) for bar in _calls(report, report["fates"])],
        limit,
        "calls",
        end,
    )
    permitted = [(each["at"], each["permitted"]) for each in report["samples"]]
    steps = chart.steps_of(permitted, end, chart.INK, "permitted callers")
    return replace(panel, draws=[*panel.draws, steps])


def _health(report: Mapping[str, Any]) -> list[Panel]:
    """The breaker's state and the backlog. Both are read about each second, so a short probe can be missing."""
    samples, end = report["samples"], report["total_seconds"]
    changes = [
        each for before, each in zip([{}, *samples], samples, strict=False) if each["breaker"] != before.get("breaker")
    ]
    ends = [*(each["at"] for each in changes[1:]), end]
    states = [Bar(1, each["at"], until, *STATES[each["breaker"]]) for each, until in zip(changes, ends, strict=False)]
    backlog = [(each["at"], each["backlog"]) for each in samples]
    most = max((each["backlog"] for each in samples), default=0)
    waiting = chart.steps_of(backlog, end, chart.SKY, "messages on the queue", filled=True)
    return [
        Panel("The circuit breaker", "", 0.3, [*chart.lanes_panel("", "", 1, states).draws, chart.without_ticks]),
        Panel(f"At most {counted(most, 'message')} on the queue", "messages", 1.3, [waiting]),
    ]


def _answers(report: Mapping[str, Any]) -> Panel:
    """A lane for each answer."""
    bars = _calls(report, report["fates"])
    labels = [label for _, label in (*CALLS.values(), OTHER) if any(bar.label == label for bar in bars)]
    lanes = [replace(bar, lane=labels.index(bar.label) + 1) for bar in bars]
    outage = report["outage"]
    during = f", {outage['calls']} of them in the outage" if outage else ""
    panel = chart.lanes_panel(f"{counted(len(bars), 'call')} by answer{during}", "", len(labels), lanes)
    return replace(panel, height=0.25 * max(2, len(labels)), draws=[*panel.draws, chart.named_lanes(labels)])


def _calls(report: Mapping[str, Any], requests: Sequence[Mapping[str, Any]]) -> list[Bar]:
    """The calls of the requests, which are in lanes 1, 2, ..."""
    end = report["total_seconds"]
    return [
        Bar(
            lane,
            call["began"],
            end if call["ended"] is None else call["ended"],
            *CALLS.get(str(call["answer"]), OTHER),
        )
        for lane, request in enumerate(requests, 1)
        for call in request["calls"]
    ]


def _requests(report: Mapping[str, Any]) -> Panel:
    end = report["total_seconds"]
    requests = sorted(report["fates"], key=lambda each: (KINDS.index(each["kind"]), each["sent"]))
    waiting, ends = [], []
    for lane, request in enumerate(requests, 1):
        stopped = end if request["ended"] is None else request["ended"]
        waiting.append(Bar(lane, request["sent"], stopped, chart.SILVER, "waiting: queued, delayed, scheduled"))
        if request["end"] in ENDS:
            color, label, marker = ENDS[request["end"]]
            ends.append(Point(request["ended"], lane, color, label, marker))
    return chart.lanes_panel(
        f"{counted(len(requests), 'request')}: {report['succeeded']} succeeded, {report['dead_lettered']} "
        f"dead-lettered{f', {report["nowhere"]} WITHOUT an end' if report['nowhere'] else ''}",
        "normal, slow, poison",
        len(requests),
        list(chain(waiting, _calls(report, requests))),
        ends,
    )
