"""Hand-off: the wake beside polling every 5, 30 and 300 s, on the embedded AWS with the deployed stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dev.benchmarks.outcome import Outcome, Tell
from dev.emulator.aws import EmbeddedAws
from dev.scenarios.runner.scenario import CannotGoOn

from . import hand_off_report
from .figures import parts, summary, window
from .hand_off_designs import Stand, Way
from .hand_off_run import FULL, SMALL, Course
from .records import read_calls, read_invocations, read_passages

NAME = "hand-off"
TITLE = "Hand-off: from a release to the next start"
MINUTES = 5.7
# The calls of functions are counted by the engine's CloudTrail.
ENGINE = {"CLOUDTRAIL_RECORDING": "1", "CLOUDTRAIL_MAX_EVENTS": "1000000"}
# No round of the janitor falls into a window: what wakes is the workflow alone.
PARAMETERS = {"JanitorSchedule": "rate(1 day)"}


def measure(folder: Path, tell: Tell, *, small: bool = False) -> Outcome:
    """Deploys, walks the course, reads the records and judges. Raises EngineError, DeploymentError and CannotGoOn."""
    plan = SMALL if small else FULL
    tell("start and deploy", 0.0)
    with EmbeddedAws.start(folder / "engine", environment=ENGINE) as aws:
        aws.deploy(PARAMETERS)
        stand = Stand(aws, plan.limit)
        wake = stand.deployed()
        polling = [stand.polling(period) for period in plan.periods]
        course = Course(stand, plan, tell)
        course.walk(wake, polling)
        tell("read the records", 1.0)
        ways = [wake, *polling]
        figures = _read(stand, ways, course)
    return hand_off_report.outcome(figures, plan.limit)


def _read(stand: Stand, ways: Sequence[Way], course: Course) -> dict[str, Any]:
    limit = course.plan.limit
    # Function, queue and workflow of a way are its own, so whatever a call names tells whose it is.
    named = {name: way.name for way in ways for name in (way.name, way.queue_url, way.workflow_arn)}
    every_call = read_calls(stand.trail, named)
    figures: dict[str, Any] = {"limit": limit, "ways": {}}
    for way in ways:
        passages = read_passages(stand.stepfunctions, way.workflow_arn)
        invocations = read_invocations(stand.logs, stand.log_group(way))
        calls = [call for call in every_call if call.way == way.name]
        windows = [window(passages, span, way.period, limit) for span in course.windows[way.name]]
        figures["ways"][way.name] = summary(windows, invocations, calls)
        if way.period is None:
            explained = [part for each in windows for part in parts(each, invocations, calls)]
            figures["parts"] = hand_off_report.part_figures(explained, len(figures["ways"][way.name]["hand_offs"]))
    _check(figures["ways"])
    return figures


def _check(ways: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises CannotGoOn for records that tell nothing, rather than judge by them."""
    for name, figures in ways.items():
        if not figures["hand_offs"] or not figures["admitted"]:
            raise CannotGoOn(f"{name} handed no slot on: there is nothing to measure")
