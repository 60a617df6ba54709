"""The load of `make run` and `make soak`: requests through the deployed workflow, and a report from AWS's records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import Snapshot, counted, watch
from dev.scenarios.runner import audit
from dev.scenarios.runner.scenario import PAGE, PICTURE, Outcome, Run, Scenario
from dev.scenarios.runner.whole_run import WholeRun, hand_offs
from slotkeeper.slots.request_table import ENDED_WITHOUT_START, State
from slotkeeper_cli.audit.audit_page import audit_page, history_timeline
from slotkeeper_cli.audit.check_result import CheckResult
from slotkeeper_cli.audit.figures import figures
from slotkeeper_cli.audit.intervals import spread
from slotkeeper_cli.audit.work_history import CHILD, GLUE_RUN, AuditBounds, WorkHistory, label_of
from slotkeeper_cli.look.timeline import timeline_svg

from . import slot_requests
from .priorities import Director, mix
from .receivers import Received, all_was_published
from .slot_requests import MACHINE_PROCESS, PROCESS
from .slot_stack import MACHINE, SlotStack, results_are_those

# Seconds. A ring takes a fraction of a second, and some on a busy machine. Without one, the janitor comes in a minute.
BOUNDS = AuditBounds(intake=10.0, free_slot=60.0)


@dataclass(frozen=True)
class Parameters:
    requests: int
    limit: int
    fail: float
    priorities: bool = False
    target: str = "glue"
    doorbell: bool = True
    keys: int = 0

    @property
    def process(self) -> str:
        return PROCESS if self.target == "glue" else MACHINE_PROCESS


def scenario(parameters: Parameters) -> Scenario:
    """What `make run` starts."""
    stack = {"ProcessName": PROCESS, "SlotLimit": str(parameters.limit), "MoreStateMachineArns": MACHINE}
    return Scenario(Path("build/run"), stack, {"lasting": True})


def measure(aws: EmbeddedAws, parameters: Parameters, run: Run) -> Outcome:
    """Run on a deployed stack. Raises Stalled, CannotContinue."""
    stack, count = SlotStack(aws, [parameters.process]), parameters.requests
    director = None
    with stack.without_doorbell() if not parameters.doorbell else nullcontext():
        with run.phase("send", f"send {counted(count, 'request')}"):
            if parameters.target == "workflow":
                stack.create_machine(parameters.limit)
                requests = slot_requests.for_the_machine(count, parameters.fail)
                stack.send(*(each for each in requests if not each.has_caller))
                for each in (each for each in requests if each.has_caller):
                    stack.receivers.call(each, stack.started)
            else:
                requests, inputs = slot_requests.for_the_job(count, parameters.fail)
                stack.upload(inputs)
                if parameters.keys:
                    stack.operations.set_key_limit(PROCESS, max(1, parameters.limit - 1))
                    requests = slot_requests.with_keys(requests, parameters.keys)
                if parameters.priorities:
                    director = Director(stack, mix(requests, parameters.limit))
                else:
                    stack.send(*requests)

        def progress(elapsed: float) -> Snapshot:
            snapshot = stack.progress(elapsed, count, count)
            if director:
                director.act(snapshot.done)
            return snapshot

        with run.phase("run", "run"):
            watch(run.console, progress, "Slotkeeper: requests in slots")
        with run.phase("collect", "collect the records"):
            slots = collect(stack, BOUNDS)
    checks = []
    if parameters.target == "glue":
        checks.append(results_are_those(slots.history, stack.sent, stack.results()))
    if not parameters.doorbell:
        checks.append(stack.doorbell_was_dead(len(slots.history.attempts), parameters.limit))
    return build(parameters, slots, checks, {})


@dataclass(frozen=True)
class SlotsOfRun:
    """What some processes left. `changes`: the known writes of their items and rows."""

    names: Sequence[str]
    history: WorkHistory
    run: WholeRun
    received: Received
    changes: Sequence[audit.Change] = ()


def collect(stack: SlotStack, bounds: AuditBounds, run: WholeRun | None = None) -> SlotsOfRun:
    """The records of a run. `run`: its disturbances and janitor runs, if there were any."""
    stack.journal.read()
    changes = [each for each in stack.journal.changes if each.process in stack.names]
    received = stack.receivers.received()
    sendings = [*(each.sending for each in stack.sent), *(each.sending for each in received.callers)]
    process = stack.names[0] if len(stack.names) == 1 else None
    history, known = audit.read(stack.aws, run or WholeRun(), sendings, changes, bounds, process)
    if process == MACHINE_PROCESS:
        received = replace(received, outputs=stack.child_outputs(history))
    return SlotsOfRun(stack.names, history, known, received, changes)


def build(parameters: Any, slots: SlotsOfRun, checks: Sequence[CheckResult], more: Mapping[str, Any]) -> Outcome:
    """The report of a run, with the page of `slotkeeper audit` and its picture. `checks`, `more`: of this run alone."""
    history = slots.history
    judged = [
        *audit.checks_of(history, slots.run, slots.changes),
        all_was_published(history, slots.run.dead_letters, slots.received),
        *checks,
    ]
    waited: dict[str, list[float]] = {}
    for each in history.attempts:
        if each.row:
            waited.setdefault(each.row.key or each.row.priority, []).append(each.started - each.row.sent)
    starts = [each.started for each in history.attempts] or [history.since]
    end = max([history.since, *(each.stopped or 0.0 for each in history.attempts)])
    kind = GLUE_RUN if any(each.kind == GLUE_RUN for each in history.work) else CHILD
    content = {
        "requests": len(slots.run.sendings),
        "of a caller that waits": len(slots.received.callers),
        "ended": dict(Counter(each.state for each in history.rows if each.ended is not None).most_common()),
        "failed": _listed(history, ("FAILED",)),
        "ended without a start": _listed(history, ENDED_WITHOUT_START),
        "workflows": dict(Counter(each.status for each in history.attempts).most_common()),
    }
    for name in slots.names:
        peak = judged[0].numbers["processes"].get(name, {}).get(kind, {})
        of = figures(history, (min(starts), max(starts))).get(name, {})
        use, item = of.get("utilization"), history.processes.get(name)
        content |= {
            f"{name}: most {kind}s alive": f"{peak.get('weight', 0)} (limit {peak.get('limit')})",
            f"{name}: slots in use at the end": item.slots_in_use if item else None,
            f"{name}: slot utilization": "not measured" if use is None else f"{use:.0%}",
            f"{name}: hand-off": spread([gap for _, gap in hand_offs(history, slots.run, name)], median=0.5, p99=0.99),
        }
    content |= {f"wait of {name}": spread(waits, p50=0.5, p90=0.9, p99=0.99) for name, waits in waited.items()}
    content |= {**more, "total time": round(end - history.since, 3)}
    pages = {PAGE: audit_page(history, judged, "slotkeeper")}
    if len(slots.names) == 1:
        pages = {PICTURE: timeline_svg(history_timeline(history, slots.names[0]), file=True)} | pages
    return Outcome(parameters, history.since, judged, content, pages)


def _listed(history: WorkHistory, states: Sequence[State]) -> list[str]:
    return [f"{label_of(each)}: {each.code}, {each.reason}" for each in history.rows if each.state in states]
