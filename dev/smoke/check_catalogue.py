"""The checks: groups of facts that share what they create, and the estimated cost of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dev.smoke import execution_facts, service_facts, state_facts, workflow_checks
from dev.smoke.facts import Fact

AS_OF = "list prices of us-east-1, May 2026, without a free tier"
GLUE_SECOND = 0.44 / 3600 / 16  # a second of the sample job, with a sixteenth of a DPU ("AWS Glue pricing")
TRANSITION = 25e-6  # Step Functions, standard workflows; a call of TestState is counted as one
REST = 2.5e-4  # SQS, DynamoDB, Lambda, Scheduler and CloudWatch: some 200 requests, 20 writes, 4 invocations


@dataclass(frozen=True)
class Check:
    """Facts that are asked one after the other. Checks run in parallel.

    glue: the seconds of its Glue runs, as an upper estimate. Glue bills at least a minute of each.
    mails: how many failures are published to the stack's topic.
    """

    name: str
    does: str
    facts: tuple[Fact, ...]
    transitions: int
    glue: tuple[int, ...] = ()
    mails: int = 0

    @property
    def dollars(self) -> float:
        return sum(max(60, seconds) for seconds in self.glue) * GLUE_SECOND + self.transitions * TRANSITION + REST


CHECKS = (
    Check("wake", "sends two requests for one slot", (workflow_checks.WAKE,), 20, (60, 60)),
    Check("listing", "sends a request", (workflow_checks.LISTING,), 10, (60,)),
    Check("stopped", "stops a Glue run, as in the console", (workflow_checks.STOPPED,), 10, (90,), mails=1),
    Check("redrive", "aborts and redrives an execution", (workflow_checks.REDRIVE,), 30, (120, 60)),
    Check(
        "timeout",
        "runs the workflow's definition with a Glue timeout of 90 s (deployed: hours), in a separate state machine",
        (workflow_checks.TIMEOUT,),
        20,
        (210,),
        mails=1,
    ),
    Check(
        "states",
        "runs single states of the deployed definition with mocked results (TestState); no role is used",
        state_facts.FACTS,
        20,
    ),
    Check(
        "errors",
        "runs two deployed states in a separate state machine, without a slot",
        execution_facts.ERROR_FACTS,
        10,
    ),
    Check(
        "children",
        "runs the deployed states for children with small state machines and a role of its own",
        execution_facts.CHILD_FACTS,
        40,
    ),
    Check(
        "callers",
        "waits for task tokens in small state machines, and answers them",
        execution_facts.CALLER_FACTS,
        30,
    ),
    Check("table", "sends the deployed updates of a slot's cycle", service_facts.TABLE_FACTS, 0),
    Check(
        "queues",
        "uses outdated receipt handles, and lets the starter refuse a request",
        service_facts.QUEUE_FACTS,
        0,
    ),
    Check("glue", "lets a run of its own job fail, and starts one too many", service_facts.GLUE_FACTS, 20, (60, 120)),
    Check(
        "schedules",
        "sends a message that the worker dead-letters by a schedule, creates one twice and one in the past, and reads "
        "a metric without data",
        service_facts.SCHEDULE_FACTS,
        0,
    ),
)
BY_NAME = {check.name: check for check in CHECKS}


def total(checks: Iterable[Check]) -> float:
    """The estimated cost in dollars. Other regions cost up to half as much again."""
    return sum(check.dollars for check in checks)
