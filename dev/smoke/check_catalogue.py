"""The checks: groups of facts that share what they create, and the estimated cost of all."""

from __future__ import annotations

from dataclasses import dataclass

from dev.smoke import execution_facts, service_facts, state_facts, workflow_checks
from dev.smoke.facts import Fact

# Eleven Glue runs of a sixteenth of a DPU, of which Glue bills at least a minute each, 200 state transitions, and some
# thousand requests. Other regions cost up to half as much again.
COST = "about $0.01 (list prices of us-east-1, May 2026, without a free tier)"


@dataclass(frozen=True)
class Check:
    """Facts that are asked one after the other. Checks run in parallel.

    mails: how many failures are published to the stack's topic.
    """

    name: str
    does: str
    facts: tuple[Fact, ...]
    mails: int = 0


CHECKS = (
    Check("ring", "sends two requests for one slot", (workflow_checks.RING,)),
    Check(
        "chain",
        f"lets {workflow_checks.CHAIN} requests of a paused process miss their deadlines, one after the other",
        (workflow_checks.CHAIN_OF_RINGS,),
    ),
    Check("listing", "sends a request", (workflow_checks.LISTING,)),
    Check("stopped", "stops a Glue run, as in the console", (workflow_checks.STOPPED,), mails=1),
    Check("redrive", "aborts and redrives an execution", (workflow_checks.REDRIVE,)),
    Check(
        "timeout",
        "runs the workflow's definition with a Glue timeout of 90 s (deployed: hours), in a separate state machine",
        (workflow_checks.TIMEOUT,),
    ),
    Check(
        "answers",
        "lets a small state machine wait for a request that succeeds, and for one whose workflow it aborts",
        (workflow_checks.ANSWER, workflow_checks.ANSWER_OF_AN_ABORT),
        mails=1,
    ),
    Check("ends", "receives the status events of four small executions", execution_facts.END_FACTS),
    Check(
        "states",
        "runs single states of the deployed definition with mocked results (TestState); no role is used",
        state_facts.FACTS,
    ),
    Check(
        "errors",
        "runs three deployed states in a separate state machine, without a slot",
        execution_facts.ERROR_FACTS,
    ),
    Check(
        "children",
        "runs the deployed states for children with small state machines and a role of its own",
        execution_facts.CHILD_FACTS,
    ),
    Check(
        "callers",
        "waits for task tokens in small state machines, and answers them",
        execution_facts.CALLER_FACTS,
    ),
    Check("table", "sends the deployed updates of a slot's cycle", service_facts.TABLE_FACTS),
    Check("rows", "adds rows of requests, ends them, and reads their indexes", service_facts.ROW_FACTS),
    Check("queues", "delays a message of its own queue", service_facts.QUEUE_FACTS),
    Check("glue", "lets a run of its own job fail, and starts one too many", service_facts.GLUE_FACTS),
    Check(
        "schedules",
        "sends a message that the worker dead-letters by a schedule, creates one twice and one in the past, and reads "
        "a metric without data",
        service_facts.SCHEDULE_FACTS,
    ),
)
BY_NAME = {check.name: check for check in CHECKS}
