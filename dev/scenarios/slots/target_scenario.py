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
from dev.scenarios.runner.scenario import Run, Scenario, spread_text
from slotkeeper_cli import chart

from . import slot_requests, target_requests, target_stack
from .slot_figures import Parameters
from .slot_report import Work, draw_run, run_tables
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


CHILD = Work("child", "children", "Step Functions'")


def tables(report: Mapping[str, Any]) -> list[Table]:
    counts = {
        "of a caller that waits": report["called"],
        "answers in the caller's Map": report["answers"],
        "most children open": f"{report['max_children_open']} (limit {report['parameters']['limit']})",
    }
    times = {"from a child's end to its answer": spread_text(report["answer_seconds"])}
    return run_tables(report, CHILD, counts, times)


def draw(report: Mapping[str, Any], path: Path) -> None:
    def summary(order: str) -> str:
        return (
            f"{len(report['workflows'])} workflows with child executions through {report['parameters']['limit']} "
            f"slots, started {order}: {report['answers']} answers for {report['called']} items of a caller"
        )

    def mark(workflow: Mapping[str, Any]) -> tuple[str, str]:
        return (chart.GREEN, "child, whose caller waits") if workflow["is_called"] else (chart.BLUE, "child execution")

    draw_run(report, path, "Slotkeeper run with a state machine", CHILD, summary, mark)


SCENARIO = Scenario(Path("build/run"), "timeline.png", draw, tables)
