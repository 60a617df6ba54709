"""The catalogue of checks: action, expectation, the AWS page behind it, and the limits of the embedded AWS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dev.smoke import (
    admission_checks,
    ended_workflow_checks,
    execution_facts,
    schedule_check,
    service_facts,
    state_facts,
)
from dev.smoke.check_context import CheckContext
from dev.smoke.costs import Spending
from dev.smoke.facts import Fact, ask_all
from dev.smoke.timings import Timings


@dataclass(frozen=True)
class Check:
    """A check of one fact about AWS. `carry_out` returns the finding, or raises Failed, Skipped or NotShown.

    does, expects, because: sentences for the report; `because` names the AWS page or the guarantee that relies on it.
    unseen: the part that the embedded AWS cannot show, because this repository implements it there.
    mails: how many failures are published to the stack's topic.
    facts: the questions that `carry_out` asks, each with a verdict of its own.
    """

    name: str
    does: str
    expects: str
    because: str
    unseen: str
    carry_out: Callable[[CheckContext], str]
    spending: Callable[[Timings], Spending]
    mails: int = 0
    facts: tuple[Fact, ...] = ()


def _asks(name: str, does: str, facts: tuple[Fact, ...], spending: Spending) -> Check:
    return Check(
        name,
        does,
        "each answer is as assumed",
        "each fact states what depends on it",
        "; ".join(["AWS's own answers", *(f"{fact.name}: {fact.not_here}" for fact in facts if fact.not_here)]),
        ask_all(facts),
        lambda _timings: spending,
        facts=facts,
    )


CHECKS = (
    Check(
        "wake",
        "sends two requests to a process with one slot; the second waits for the first",
        f"the second starts within {admission_checks.HAND_OFF:.0f} s of the release",
        "S6: the workflow makes the waiting message visible, and the event source mapping's long poll receives it "
        'immediately (Lambda guide, "Using Lambda with Amazon SQS"; SQS API reference, ChangeMessageVisibility)',
        "the pollers of a real event source mapping, and their latency",
        admission_checks.wake,
        lambda timings: Spending((timings.hold + 30, 30), transitions=20, invocations=4),
    ),
    Check(
        "groups",
        "sends one request each to two processes",
        "their workflows run in parallel",
        "an event source mapping polls all active message groups of a FIFO queue in parallel (Lambda guide, "
        '"Configuring scaling behavior for SQS event source mappings")',
        "how many groups a real event source mapping has in flight",
        admission_checks.groups,
        lambda timings: Spending((timings.hold + 30, timings.hold + 30), transitions=20, invocations=2),
    ),
    Check(
        "listing",
        "compares StartJobRun's answer with the run's first appearance in GetJobRuns",
        "the run is listed within the gap between two checks (LookGapSeconds)",
        "S1b: a slot is freed after two checks without a live run; AWS documents no bound (Glue API, GetJobRuns)",
        "the delay: the embedded Glue lists a run when it starts it",
        admission_checks.listing,
        lambda _pace: Spending((60,), transitions=10, invocations=1),
    ),
    Check(
        "stopped",
        "stops a Glue run, as an operator would in the console",
        "the task's error contains the state STOPPED, and the workflow's log names the error; the request is kept and "
        "the slot freed without a check of Glue",
        'the run is the cause of States.TaskFailed (Step Functions guide, "Start an AWS Glue job with Step Functions")',
        "the form in which AWS states the cause, and the workflow's log",
        ended_workflow_checks.stopped,
        lambda _pace: Spending((90,), transitions=10, invocations=1),
        mails=1,
    ),
    Check(
        "redrive",
        "aborts an execution and redrives it",
        "it starts no second run, queues its request again, and releases the slot after the run has ended",
        "F4: a redrive begins at the step that did not succeed, with the context object's RedriveCount raised (Step "
        'Functions guide, "Restarting state machine executions with redrive")',
        "where AWS begins a redrive, and that it raises RedriveCount",
        ended_workflow_checks.redrive,
        lambda timings: Spending((120, timings.hold + 30), transitions=30, invocations=3),
    ),
    Check(
        "timeout",
        "runs the workflow's definition with a short timeout of its Glue task, in a separate state machine",
        "the run continues after the timeout; the workflow stops it, and only then releases the slot",
        'S1b: AWS does not document what happens to the run (Step Functions guide, "Discover service integration '
        'patterns", Run a Job)',
        "that AWS does not stop the run",
        ended_workflow_checks.timeout,
        lambda timings: Spending((timings.task_timeout + 120,), transitions=20),
        mails=1,
    ),
    Check(
        "schedule",
        "creates a one-time schedule with the worker's group and role, for a message that the worker dead-letters",
        f"the message arrives within {schedule_check.PRECISION} s after its time, and the schedule is deleted",
        'retries that are due after SchedulerBeyondSeconds (Scheduler guide, "Schedule types in EventBridge '
        'Scheduler", "Deleting a schedule")',
        "Scheduler's precision, and that it may assume the stack's role",
        schedule_check.schedule,
        lambda _pace: Spending(invocations=1, schedules=1),
    ),
    _asks(
        "states",
        "runs single states of the deployed definition with mocked results (TestState)",
        state_facts.FACTS,
        Spending(transitions=20, queue_requests=0, writes=0),
    ),
    _asks(
        "errors",
        "runs four states of the deployed definition, in a separate state machine, with a slot, token and handle "
        "that do not exist",
        execution_facts.ERROR_FACTS,
        Spending(transitions=10, queue_requests=5),
    ),
    _asks(
        "children",
        "runs the deployed definition's states for child executions with small state machines and a role of its own",
        execution_facts.CHILD_FACTS,
        Spending(transitions=60, queue_requests=0, writes=0),
    ),
    _asks(
        "endings",
        "fails, aborts and redrives executions of small state machines, and receives their status events",
        execution_facts.ENDED_FACTS,
        Spending(transitions=20),
    ),
    _asks(
        "callers",
        "waits for task tokens in small state machines, and answers them with the deployed definition's states",
        execution_facts.CALLER_FACTS,
        Spending(transitions=30),
    ),
    _asks(
        "table",
        "sends the deployed updates of a slot's cycle to SlotTable, for a process of its own",
        service_facts.TABLE_FACTS,
        Spending(queue_requests=0, writes=10),
    ),
    _asks(
        "queues",
        "uses expired and older receipt handles, lets the starter refuse a request, and redrives a dead letter",
        service_facts.QUEUE_FACTS,
        Spending(invocations=3),
    ),
    _asks(
        "glue",
        "lets a run of a job of its own fail, and starts one too many",
        service_facts.GLUE_FACTS,
        Spending((60, 120), transitions=20, queue_requests=0, writes=0),
    ),
    _asks(
        "schedules",
        "creates two schedules of one name and one in the past, and reads a metric without data",
        service_facts.SCHEDULE_FACTS,
        Spending(queue_requests=0, writes=0, schedules=1, metrics=1),
    ),
    _asks(
        "manual",
        "calls nothing: it lists the facts that only a person can show, and how",
        service_facts.MANUAL_FACTS,
        Spending(queue_requests=0, writes=0),
    ),
)
BY_NAME = {check.name: check for check in CHECKS}
