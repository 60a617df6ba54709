"""Hand-off: the wake against polling every 5, 30 and 300 s, on the embedded AWS with the deployed stack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dev.benchmarks.outcome import Notify, Outcome
from dev.emulator.aws import EmbeddedAws
from dev.scenarios.runner.scenario import CannotContinue

from . import hand_off_report
from .figures import summary, window
from .hand_off_designs import JOB, BenchmarkStack
from .hand_off_run import FULL, SMALL, HandOffRun
from .records import read_calls, read_invocations
from .workflow_records import read_executions

TITLE = "Hand-off: from a release to the next start"
MINUTES = 7.4
# The engine's CloudTrail counts the functions' calls.
ENGINE = {"CLOUDTRAIL_RECORDING": "1", "CLOUDTRAIL_MAX_EVENTS": "1000000"}
# The janitor does not run during a window: all wakes are the workflow's.
PARAMETERS = {
    "JanitorSchedule": "rate(1 day)",
    "MoreGlueJobArns": f"arn:aws:glue:us-east-1:000000000000:job/{JOB}",
    "MoreStateMachineArns": "arn:aws:states:us-east-1:000000000000:stateMachine:child",
}


def measure(folder: Path, notify: Notify, *, small: bool = False) -> Outcome:
    """Deploy, measure, read the records and judge. Raises EngineError, DeploymentError and CannotContinue."""
    plan = SMALL if small else FULL
    notify("start and deploy", 0.0)
    with EmbeddedAws.start(folder / "engine", environment=ENGINE) as aws:
        aws.deploy(PARAMETERS)
        stack = BenchmarkStack(aws, plan.limit)
        wakes = [stack.deployed(), stack.with_children()]
        run = HandOffRun(stack, plan, notify, wakes, [stack.polling(period) for period in plan.periods])
        run.measure()
        notify("read the records", 1.0)
        figures = _read(stack, run)
    return hand_off_report.outcome(figures, plan.limit)


def _read(stack: BenchmarkStack, run: HandOffRun) -> dict[str, Any]:
    """Raises CannotContinue for records without a hand-off."""
    limit, variants = run.plan.limit, (*run.wakes, *run.polling)
    # Variants that share function, queue and workflow have different windows, so a window's calls are its variant's.
    named = {name: each.queue_url for each in variants for name in (each.name, each.queue_url, each.workflow_arn)}
    every_call = read_calls(stack.trail, named)
    figures: dict[str, Any] = {}
    for each in variants:
        executions = read_executions(stack.stepfunctions, each.workflow_arn)
        invocations = read_invocations(stack.logs, stack.log_group(each))
        windows = [window(executions, span, each.period, limit) for span in run.windows[each.name]]
        made = summary(windows, invocations, [call for call in every_call if call.queue == each.queue_url])
        if not made["hand_offs"] or not made["admitted"]:
            raise CannotContinue(f"{each.name} handed off no slot: there is nothing to measure")
        figures[each.name] = made
    return {"limit": limit, "ways": figures}
