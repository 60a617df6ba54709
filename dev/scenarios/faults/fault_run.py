"""`make soak`: send requests for minutes while every kind of fault acts, remove the faults, drain, judge.

Only times are changed, not the protocol: a Glue minute lasts seconds, the visibility timeouts of the queues are seconds
instead of three minutes, and the run invokes the janitor every few seconds, with a shorter timeout.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import counted
from dev.scenarios.runner import checks
from dev.scenarios.runner.janitor_clock import JanitorClock, JanitorRun
from dev.scenarios.runner.scenario import Outcome, Run, Scenario
from dev.scenarios.runner.whole_run import Disturbance, WholeRun, hand_offs
from dev.scenarios.slots.receivers import ROLE
from dev.scenarios.slots.slot_load import build, collect
from dev.scenarios.slots.slot_stack import SlotStack
from slotkeeper_cli.audit.check_result import CheckResult, first_of
from slotkeeper_cli.audit.intervals import spread
from slotkeeper_cli.audit.work_history import AuditBounds

from .fault_plan import DECK, KEYED, PROCESSES, RESTARTED, SHORT, Plan, burst, draw
from .fault_player import FaultMark, FaultPlayer

GRACE, CHECK_GAP, JANITOR_PERIOD = 2, 1, 3.0  # seconds
JANITOR_TIMEOUT = 40  # seconds; with the template's 120, no janitor runs for two minutes after one was killed
VISIBILITY = 6  # seconds; with the template's 180, messages would wait for three minutes after each kill
CALM_EACH = 4  # requests per process in addition to its slots, after the faults
ENGINE = {"SLOTKEEPER_GLUE_MINUTE_SECONDS": "15", "SLOTKEEPER_GLUE_PLACE_HELD_SECONDS": "1"}
JOB = "soak-job"
PARAMETERS = {
    "JanitorSchedule": "rate(1 day)",
    "GraceSeconds": str(GRACE),
    "CheckGapSeconds": str(CHECK_GAP),
    "WorkTimeoutMinutes": "1",
    "MoreGlueJobArns": f"arn:aws:glue:us-east-1:000000000000:job/{JOB}",
}
SCENARIO = Scenario(Path("build/soak"), PARAMETERS, {"faults": True, "lasting": True, "environment": ENGINE})
# Seconds. A free slot is taken within a fraction of a second, more on a busy machine; the message of a starter that was
# killed comes again after 6. The janitor has run at the end, so nothing is left to it.
BOUNDS = AuditBounds(dead_holder=0.0, intake=10.0, free_slot=7.0)
FAULT_LASTS = 10.0  # seconds after a fault within which a new container receives a hidden message
# Faults that can end a starter or lose a ring. An aborted workflow rings not.
DISTURBING = {
    *RESTARTED,
    "abort",
    "abort at a step",
    "abort, run left alive",
    "containers killed",
    "fault in StartExecution",
    "fault in a task",
    "fault in an API call",
    "redriven",
}


@dataclass(frozen=True)
class Parameters:
    minutes: float
    seed: int
    limit: int


def measure(aws: EmbeddedAws, parameters: Parameters, run: Run) -> Outcome:
    """Run on an engine and a stack as SCENARIO has them."""
    plan = draw(parameters.minutes, parameters.seed, parameters.limit)
    stack = SlotStack(aws, PROCESSES)
    prepare(stack, plan)
    with JanitorClock(aws, JANITOR_PERIOD) as janitor:
        player = FaultPlayer(stack, plan, janitor, run.console)
        with run.phase("storm", f"{counted(len(plan.sends), 'request')}, {counted(len(plan.faults), 'fault')}"):
            player.storm()
        with run.phase("drain", "remove the faults, and drain the queue"):
            player.remove_faults()
            player.settle(janitor_runs=2)
        with run.phase("calm", "the same without faults and without the janitor"):
            janitor.paused.set()
            calm_from = time.time()
            for request in burst(plan.limits, CALM_EACH):
                if request.has_caller:
                    stack.receivers.call(request, calm_from)
                else:
                    stack.send(request)
            player.settle(janitor_runs=0)
            janitor.paused.clear()
            player.settle(janitor_runs=2)  # the janitor frees slots that no workflow released
    with run.phase("collect", "collect the records"):
        marks = sorted(player.marks, key=lambda mark: mark.at)
        slots = collect(stack, BOUNDS, whole_run(janitor.runs, marks, calm_from, GRACE))
    gaps = [gap for name in PROCESSES for at, gap in hand_offs(slots.history, slots.run, name) if at >= calm_from]
    restarts = RESTARTED if parameters.minutes >= SHORT else RESTARTED[1:]
    more = {
        "hand-off after the faults": spread(gaps, median=0.5, p99=0.99),
        "bad messages": sum(mark.kind == "bad message" for mark in marks),
        "writes of both tables": len(slots.changes),
        "janitor runs": dict(Counter("complete" if each.ok else "interrupted" for each in janitor.runs)),
        "faults by kind": dict(Counter(mark.kind for mark in marks).most_common()),
        "faults": [_as_text(mark, stack.started) for mark in marks],
    }
    return build(parameters, slots, [every_fault_acted(marks, [*DECK, *restarts])], more)


def _as_text(mark: FaultMark, started: float) -> str:
    time = f"{mark.at - started:.1f} to {mark.until - started:.1f} s"
    return f"{time}: {', '.join(filter(None, [mark.kind, mark.detail, mark.process]))}"


def prepare(stack: SlotStack, plan: Plan) -> None:
    """Create the job and the processes, and set the short times."""
    bucket, key, script = stack.outputs["DataBucketName"], f"jobs/{JOB}.py", Path(__file__).with_name("timed_job.py")
    stack.aws.client("s3").put_object(Bucket=bucket, Key=key, Body=script.read_bytes())
    stack.aws.client("glue").create_job(
        Name=JOB,
        Role=ROLE,
        Command={"Name": "pythonshell", "ScriptLocation": f"s3://{bucket}/{key}"},
        # A little more than all slots, so that starts sometimes exceed the runs that Glue still counts (F3).
        ExecutionProperty={"MaxConcurrentRuns": sum(plan.limits.values()) + 2},
    )
    for process, limit in plan.limits.items():
        stack.processes.create(process, limit, JOB, key_limit=(limit + 1) // 2 if process == KEYED else None)
    for queue in ("RequestQueueUrl", "DispatchQueueUrl", "EndingQueueUrl"):
        attributes = {"VisibilityTimeout": str(VISIBILITY)}
        stack.sqs.set_queue_attributes(QueueUrl=stack.outputs[queue], Attributes=attributes)
    janitor = stack.outputs["JanitorFunctionName"]
    stack.functions.update_function_configuration(FunctionName=janitor, Timeout=JANITOR_TIMEOUT)
    # The first containers take seconds to start.
    names = [each["FunctionName"] for each in stack.functions.list_functions()["Functions"]]
    (starter,) = (name for name in names if "Starter" in name)
    stack.functions.invoke(FunctionName=starter, Payload=b'{"Records": []}')


def whole_run(
    janitor_runs: Sequence[JanitorRun], marks: Sequence[FaultMark], calm_from: float, grace: float
) -> WholeRun:
    """The faults and janitor runs for the checks. Another fault may act while one lasts, so starts take longer then."""
    disturbances = [
        Disturbance(mark.at, min(mark.until + FAULT_LASTS, calm_from), mark.process)
        for mark in marks
        if mark.kind in DISTURBING
    ]
    outages = [Disturbance(mark.at, mark.until, is_outage=True) for mark in marks if mark.kind in RESTARTED]
    complete = [(each.started, each.ended) for each in janitor_runs if each.ok]
    return WholeRun(disturbances=[*disturbances, *outages], disturbed=60.0, janitor_runs=complete, grace=grace)


def every_fault_acted(marks: Sequence[FaultMark], kinds: Sequence[str]) -> CheckResult:
    """Without the faults the other checks would show little."""
    acted = {mark.kind for mark in marks}
    missing = [kind for kind in kinds if kind not in acted]
    lacking = f"; not: {', '.join(first_of(missing, checks.NAMES_SHOWN))}" if missing else ""
    finding = f"{len(marks)} faults of {len(acted)} kinds{lacking}"
    return checks.check("every kind of fault has acted", None if missing else True, finding)
