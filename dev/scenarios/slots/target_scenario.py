"""`make run TARGET=workflow`: a state machine as the target, and a caller that waits for its requests' results."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.table import Table

from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import counted
from dev.emulator.sample_data import read_dataset
from dev.scenarios.runner import chart
from dev.scenarios.runner.chart import Bar, Point
from dev.scenarios.runner.scenario import Run, Scenario, figure_table, list_table, spread_text

from . import slot_requests, target_requests, target_stack
from .slot_chart import slot_panels
from .slot_figures import Parameters
from .target_figures import build
from .target_stack import Machines


def perform(aws: EmbeddedAws, parameters: Parameters, run: Run) -> dict[str, Any]:
    """Run on a started engine, and return the report. Raises Stalled, SendFailed, CannotContinue."""
    with run.phase("deploy", "build and deploy, with two state machines"):
        machines = target_stack.create_machines(aws)
        aws.deploy({"MoreStateMachineArns": machines.child})
    return measure(aws, machines, parameters, run)


def measure(aws: EmbeddedAws, machines: Machines, parameters: Parameters, run: Run) -> dict[str, Any]:
    """Run on a stack that may start the machines."""
    target_stack.add_process(aws, parameters.limit, machines.child)
    run_id = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    work = target_requests.plan(read_dataset(), requests=parameters.requests, fail=parameters.fail, run_id=run_id)
    with run.phase("send", f"send {counted(len(work.produced), 'request')}"):
        produced = slot_requests.send(aws.client("sqs"), aws.outputs["RequestQueueUrl"], work.produced)
    with run.phase("run", f"run, with a caller that waits for {counted(len(work.called), 'result')}"):
        caller = target_stack.call(aws, machines, work.called)
        run.watch(lambda elapsed: target_stack.progress(aws, parameters.requests, parameters.limit, caller, elapsed))
    with run.phase("collect", "collect the records"):
        records = target_stack.collect(aws, machines, caller, produced, work.called)
    return build(parameters, records, run)


# ----------------------------------------------------------------------------------------------------- report, shown


def tables(report: Mapping[str, Any]) -> list[Table]:
    use, in_child = (
        "not measured" if report[name] is None else f"{report[name]:.0%}"
        for name in ("slot_utilisation", "child_utilisation")
    )
    rows = {
        "requests": f"{report['requests']} ({report['called']} of a caller that waits)",
        "succeeded": report["succeeded"],
        "failed": report["failed"],
        "in FailedRequestQueue": len(report["kept"]),
        "dead-lettered": len(report["dead_lettered"]),
        "answers in the caller's Map": report["answers"],
        "most children open": f"{report['max_children_open']} (limit {report['parameters']['limit']})",
        "starts in message order": "yes" if report["starts_in_message_order"] else "no",
        "slots in use at the end": report["slots_in_use_at_end"],
        "hand-off": spread_text(report["handoff"], "no request had to wait"),
        "from a child's end to its answer": spread_text(report["answer_seconds"]),
        "slot utilisation": f"{use} (in children {in_child})",
        "total time": "unknown" if report["total_seconds"] is None else f"{report['total_seconds']:.2f} s",
    }
    kept = ([message[key] or "none" for key in ("request_id", "error", "reason")] for message in report["kept"])
    return [
        figure_table("The run, by Step Functions' own records", rows),
        *list_table("Kept in FailedRequestQueue", ("request", "error", "reason"), kept),
    ]


def draw(report: Mapping[str, Any], path: Path) -> None:
    """A bar for each workflow, the slots in use against the limit, and the hand-offs."""
    workflows, limit, end = report["workflows"], report["parameters"]["limit"], report["total_seconds"] or 0.0
    bars, failures = [], []
    for lane, workflow in enumerate(workflows, 1):
        stopped = end if workflow["stopped"] is None else workflow["stopped"]
        bars.append(Bar(lane, workflow["started"], stopped, chart.SKY, "rest of the workflow"))
        if workflow["child_entered"] is not None:
            exited = stopped if workflow["child_exited"] is None else workflow["child_exited"]
            color, label = (
                (chart.AMBER, "child, whose caller waits") if workflow["is_called"] else (chart.BLUE, "child execution")
            )
            bars.append(Bar(lane, workflow["child_entered"], exited, color, label))
        if workflow["status"] not in ("SUCCEEDED", "RUNNING"):
            failures.append(Point(stopped, lane, chart.VERMILLION, "end of a failed workflow"))
    order = "in message order" if report["starts_in_message_order"] else "NOT in message order"
    panels = [
        chart.lanes_panel(
            f"{len(workflows)} workflows with child executions through {limit} slots, started {order}: "
            f"{report['answers']} answers for {report['called']} items of a caller",
            "workflow, in start order",
            len(workflows),
            bars,
            failures,
        ),
        *slot_panels(report, end),
    ]
    chart.draw(path, "Slotkeeper run with a state machine", "seconds since the first request was sent", end, panels)


SCENARIO = Scenario(Path("build/run"), "timeline.png", draw, tables)
