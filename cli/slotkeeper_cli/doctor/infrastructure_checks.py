"""Checks of what the flows run on: queues, functions, event sources, tables, rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from slotkeeper_cli.doctor.facts import Facts
from slotkeeper_cli.doctor.health_checks import Finding, HealthCheck, problem, warn
from slotkeeper_cli.formatting import count
from slotkeeper_cli.recursion_settings import WHY

# Queue -> the function that works on it, and where what it gives up goes.
CONSUMERS = {
    "RequestQueue": ("StarterFunction", "RequestDeadLetterQueue"),
    "WorkQueue": ("WorkerFunction", "WorkDeadLetterQueue"),
}
_DEPLOY = "deploy the stack again"
_VISIBILITY_FACTOR = 6  # Lambda guide, "Configuring an SQS queue for use with Lambda"
_SPARE_CONCURRENCY = 2  # places above WorkerConcurrency, for messages that Lambda has received and cannot run yet
_MIN_UNRESERVED = 100  # what an account must leave unreserved (Lambda API reference, PutFunctionConcurrency)


def stack(facts: Facts) -> Iterator[Finding]:
    status = facts.stack_status
    if status.endswith("_FAILED"):
        yield problem(f"the stack is {status}", "see its events in CloudFormation, fix the cause, and deploy again")
    elif status.endswith("_IN_PROGRESS"):
        yield warn(f"the stack is {status}", "run this again when it has finished")


def _worked_on(facts: Facts) -> Iterator[tuple[str, tuple[str, str]]]:
    """The queues of WORKED_ON that the stack was deployed with."""
    for queue, names in CONSUMERS.items():
        if queue != "WorkQueue" or "worker" not in facts.not_deployed:
            yield queue, names


def visibility(facts: Facts) -> Iterator[Finding]:
    for queue, (function, _) in _worked_on(facts):
        seconds, timeout = int(facts.queues[queue]["VisibilityTimeout"]), facts.functions[function].timeout
        if seconds < _VISIBILITY_FACTOR * timeout:
            yield problem(
                f"{queue} hides a message for {seconds} s, and {function} may take {timeout} s",
                f"set its visibility timeout to {_VISIBILITY_FACTOR * timeout} s, six times the function's; {_DEPLOY}",
            )


def redrive(facts: Facts) -> Iterator[Finding]:
    for queue, (_, dead) in _worked_on(facts):
        policy = json.loads(facts.queues[queue].get("RedrivePolicy", "{}"))
        target = str(policy.get("deadLetterTargetArn", ""))
        if target != facts.queues[dead]["QueueArn"]:
            yield problem(f"{queue} has {target or 'nothing'} as its dead-letter queue, not {dead}", _DEPLOY)
        elif int(policy.get("maxReceiveCount", 0)) < 1000:
            yield problem(
                f"{queue} dead-letters a message after {policy.get('maxReceiveCount')} receives; waiting uses "
                "up to 700",
                f"set maxReceiveCount to 1000; {_DEPLOY}",
            )


def mappings(facts: Facts) -> Iterator[Finding]:
    for queue, (function, _) in _worked_on(facts):
        mapping = facts.mappings[queue]
        if len(mapping) != 1:
            yield problem(
                f"{queue} has {count(len(mapping), 'event source mapping')}, and {function} should be its only one",
                _DEPLOY if not mapping else "delete those that are not the stack's: they take its messages",
            )
        for one in mapping:
            yield from _mapping(queue, function, one)


def _mapping(queue: str, function: str, one: dict[str, Any]) -> Iterator[Finding]:
    if one.get("State") not in ("Enabled", "Enabling", "Updating", "Creating"):
        yield problem(
            f"the event source of {queue} is {one.get('State')}: {function} receives no messages",
            f"aws lambda update-event-source-mapping --enabled --uuid {one.get('UUID')}",
        )
    if one.get("BatchSize") != 1:
        yield problem(
            f"{function} receives {one.get('BatchSize')} messages of {queue} at once: one that is hidden or "
            "slow costs the "
            "others their time",
            f"set BatchSize to 1; {_DEPLOY}",
        )
    if "ReportBatchItemFailures" not in one.get("FunctionResponseTypes", []):
        yield problem(
            f"the event source of {queue} does not report failed items: messages that should stay are deleted",
            f"set FunctionResponseTypes to ReportBatchItemFailures; {_DEPLOY}",
        )


def worker_concurrency(facts: Facts) -> Iterator[Finding]:
    wanted = int(facts.parameters.get("WorkerConcurrency") or 3)
    reserved = facts.functions["WorkerFunction"].reserved
    for one in facts.mappings["WorkQueue"]:
        most = one.get("ScalingConfig", {}).get("MaximumConcurrency")
        if most is None:
            yield problem(
                "nothing bounds how many requests the worker takes at once", f"set MaximumConcurrency; {_DEPLOY}"
            )
        elif most != wanted:
            yield warn(f"the worker takes {most} requests at once, and the stack's parameter says {wanted}", _DEPLOY)
        if most is not None and reserved is not None and 0 < reserved <= most:
            yield problem(
                f"the worker has {reserved} places of its own, and takes {most} messages at once: some are throttled, "
                "which costs them receives",
                "set WorkerReservedConcurrency above WorkerConcurrency, and deploy",
            )
    if reserved is not None:
        return
    if int(facts.parameters.get("WorkerReservedConcurrency") or 0):
        yield warn("the worker has no concurrency of its own any more", _DEPLOY)
    elif facts.unreserved_concurrency >= _MIN_UNRESERVED + wanted + _SPARE_CONCURRENCY:
        yield warn(
            "the worker has no concurrency of its own: a busy account throttles it, which costs messages receives",
            f"deploy with WorkerReservedConcurrency={wanted + _SPARE_CONCURRENCY}, which this account can spare",
        )


def stopped_functions(facts: Facts) -> Iterator[Finding]:
    for one in facts.functions.values():
        if one.reserved == 0:
            yield problem(
                f"{one.logical_id} has a reserved concurrency of 0: Lambda never runs it",
                "it was stopped manually; start it with aws lambda delete-function-concurrency",
            )


def recursion(facts: Facts) -> Iterator[Finding]:
    for one in facts.recursion:
        if one.differs:
            yield problem(
                f"{one.function} has RecursiveLoop {one.deployed}, and the template {one.template}: "
                f"{WHY.get(one.template, '')}",
                "aws lambda put-function-recursion-config, or a deployment that changes the function, sets it again",
            )


def tables(facts: Facts) -> Iterator[Finding]:
    for one in facts.tables:
        if one.expires_wanted and not one.expires:
            yield problem(f"{one.logical_id} keeps its items forever: its TTL is disabled", _DEPLOY)
        if one.recoverable_wanted and not one.recoverable:
            yield problem(f"{one.logical_id} cannot be restored: point-in-time recovery is disabled", _DEPLOY)


def rules(facts: Facts) -> Iterator[Finding]:
    for name, state in facts.rules.items():
        wanted = facts.template.get(name, {}).get("Properties", {}).get("State", "ENABLED")
        if wanted == "ENABLED" and not state.startswith("ENABLED"):
            janitor = ": slots of dead holders stay taken" if name.startswith("Janitor") else ""
            yield problem(f"rule {name} is {state}{janitor}", "enable it with aws events enable-rule")


def stack_drift(facts: Facts) -> Iterator[Finding]:
    """What CloudFormation finds changed by hand; asked for on its own, since it takes minutes."""
    for name, status in facts.drifted.items():
        if name == "RetryPolicyParameter" and status == "MODIFIED":
            continue  # operators put their policy there
        yield warn(f"{name} is {status}, compared with the template", "see the stack's drift in CloudFormation")


CHECKS = (
    HealthCheck("stack", "the last deployment has finished", stack),
    HealthCheck("visibility", "queues hide a message for six times their function's timeout", visibility),
    HealthCheck("redrive", "queues dead-letter a message after 1000 receives", redrive),
    HealthCheck("event-sources", "functions receive messages one at a time, and report failed items", mappings),
    HealthCheck(
        "worker-concurrency",
        "the worker's concurrency is WorkerConcurrency, and can be reached",
        worker_concurrency,
        flow="worker",
    ),
    HealthCheck("functions", "no function has a reserved concurrency of 0", stopped_functions),
    HealthCheck("recursion", "the recursion setting of each function is the template's", recursion),
    HealthCheck("tables", "tables expire and can be restored as the template says", tables),
    HealthCheck("rules", "schedules and event rules are enabled", rules),
)
DRIFT = HealthCheck("stack-drift", "resources are as the template declares them", stack_drift)
