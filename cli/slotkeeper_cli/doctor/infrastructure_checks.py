"""Checks of the deployment: queues, functions, event source mappings, tables and rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slotkeeper import __version__
from slotkeeper_cli.doctor.facts import Facts
from slotkeeper_cli.doctor.health_checks import Finding, HealthCheck, problem, warn
from slotkeeper_cli.formatting import count


@dataclass(frozen=True)
class QueueConsumer:
    """How a function receives the messages of a queue.

    Attributes:
        dead_letters: the queue's dead-letter queue; empty if it has none.
        receives: after which SQS moves a message there.
        batch: the number of messages of a batch.
    """

    function: str
    dead_letters: str
    receives: int
    batch: int


CONSUMERS = {
    "RequestQueue": QueueConsumer("StarterFunction", "RequestDeadLetterQueue", 20, 10),
    "DispatchQueue": QueueConsumer("StarterFunction", "", 0, 10),
    "EndingQueue": QueueConsumer("EndingFunction", "", 0, 10),
    "WorkQueue": QueueConsumer("WorkerFunction", "WorkDeadLetterQueue", 1000, 1),
}
# What the janitor, which runs once a minute, does alone if a queue has no function.
_ALONE = {"DispatchQueue": "starts what is queued", "EndingQueue": "answers callers and publishes ends"}
_DEPLOY = "deploy the stack again"
_VISIBILITY_FACTOR = 6  # Lambda guide, "Configuring an SQS queue for use with Lambda"
_SPARE_CONCURRENCY = 2  # above WorkerConcurrency, so that Lambda does not throttle messages that it has received
_MIN_UNRESERVED = 100  # that an account must leave (Lambda API Reference, PutFunctionConcurrency)
# Template's RecursiveLoop -> its reason.
_WHY_RECURSION = {
    "Allow": "it sends to its own queue by design, and ends the chain itself",
    "Terminate": "it is not designed to loop; Lambda stops a loop after about 16 invocations, and an alarm reports it",
}


def stack(facts: Facts) -> Iterator[Finding]:
    status = facts.stack_status
    if status.endswith("_FAILED"):
        yield problem(
            f"the stack is {status}", "see the events of the stack in CloudFormation, fix the cause, and deploy again"
        )
    elif status.endswith("_IN_PROGRESS"):
        yield warn(f"the stack is {status}", "run this again when the deployment has finished")
    if facts.stack_version != __version__:
        yield warn(
            f"the stack has version {facts.stack_version}, but this command has {__version__}",
            "install the command of the stack's version, or deploy this version",
        )


def _consumed(facts: Facts) -> Iterator[tuple[str, QueueConsumer]]:
    """The entries of CONSUMERS whose queue is deployed."""
    for queue, consumer in CONSUMERS.items():
        if queue != "WorkQueue" or "worker" not in facts.not_deployed:
            yield queue, consumer


def visibility(facts: Facts) -> Iterator[Finding]:
    for queue, consumer in _consumed(facts):
        function = consumer.function
        seconds, timeout = int(facts.queues[queue]["VisibilityTimeout"]), facts.functions[function].timeout
        if seconds < _VISIBILITY_FACTOR * timeout:
            yield problem(
                f"{queue} has a visibility timeout of {seconds} s, but {function} may run for {timeout} s",
                f"set it to {_VISIBILITY_FACTOR * timeout} s, six times the function's timeout; {_DEPLOY}",
            )


def redrive(facts: Facts) -> Iterator[Finding]:
    for queue, consumer in _consumed(facts):
        policy = json.loads(facts.queues[queue].get("RedrivePolicy", "{}"))
        target, dead = str(policy.get("deadLetterTargetArn", "")), consumer.dead_letters
        if target != (facts.queues[dead]["QueueArn"] if dead else ""):
            yield problem(f"the dead-letter queue of {queue} is {target or 'missing'}, not {dead or 'none'}", _DEPLOY)
        elif int(policy.get("maxReceiveCount", 0)) < consumer.receives:
            yield problem(
                f"{queue} dead-letters a message after {policy.get('maxReceiveCount')} receives",
                f"set maxReceiveCount to {consumer.receives}; {_DEPLOY}",
            )


def mappings(facts: Facts) -> Iterator[Finding]:
    for queue, consumer in _consumed(facts):
        mapping, function = facts.mappings[queue], consumer.function
        if len(mapping) != 1:
            yield problem(
                f"{queue} has {count(len(mapping), 'event source mapping')}, but should have one, of {function}",
                _DEPLOY if not mapping else f"delete the others, which take messages from {function}",
            )
        for one in mapping:
            yield from _mapping(queue, consumer, one)


def _mapping(queue: str, consumer: QueueConsumer, one: dict[str, Any]) -> Iterator[Finding]:
    if one.get("State") not in ("Enabled", "Enabling", "Updating", "Creating"):
        alone = f", so the janitor alone {_ALONE[queue]}, once a minute" if queue in _ALONE else ""
        saw = f"the event source mapping of {queue} is {one.get('State')}: {consumer.function} receives no messages"
        yield problem(
            saw + alone,
            f"enable it with aws lambda update-event-source-mapping --enabled --uuid {one.get('UUID')}",
        )
    if one.get("BatchSize") != consumer.batch:
        yield problem(
            f"{consumer.function} receives batches of {one.get('BatchSize')} from {queue}, not of {consumer.batch}",
            f"set BatchSize to {consumer.batch}; {_DEPLOY}",
        )
    if "ReportBatchItemFailures" not in one.get("FunctionResponseTypes", []):
        yield problem(
            f"the event source mapping of {queue} does not report failed items: messages that should stay are deleted",
            f"set FunctionResponseTypes to ReportBatchItemFailures; {_DEPLOY}",
        )


def starter_concurrency(facts: Facts) -> Iterator[Finding]:
    wanted = int(facts.parameters["StarterConcurrency"])
    for queue in ("RequestQueue", "DispatchQueue", "EndingQueue"):
        for one in facts.mappings[queue]:
            most = one.get("ScalingConfig", {}).get("MaximumConcurrency")
            if most != wanted:
                saw = f"the MaximumConcurrency of {queue}'s event source is {most}, but StarterConcurrency is {wanted}"
                yield warn(saw, _DEPLOY)


def worker_concurrency(facts: Facts) -> Iterator[Finding]:
    wanted = int(facts.parameters.get("WorkerConcurrency") or 3)
    reserved = facts.functions["WorkerFunction"].reserved
    for one in facts.mappings["WorkQueue"]:
        most = one.get("ScalingConfig", {}).get("MaximumConcurrency")
        if most is None:
            yield problem(
                "the event source mapping of WorkQueue has no MaximumConcurrency: concurrent calls are not limited",
                f"set MaximumConcurrency to {wanted}; {_DEPLOY}",
            )
        elif most != wanted:
            yield warn(f"the worker's MaximumConcurrency is {most}, but WorkerConcurrency is {wanted}", _DEPLOY)
        if most is not None and reserved is not None and 0 < reserved <= most:
            yield problem(
                f"the worker's reserved concurrency, {reserved}, is not above its MaximumConcurrency, {most}: Lambda "
                "throttles some messages, which uses up their receives",
                "deploy with a WorkerReservedConcurrency above WorkerConcurrency",
            )
    if reserved is not None:
        return
    if int(facts.parameters.get("WorkerReservedConcurrency") or 0):
        yield warn("the worker has no reserved concurrency, although WorkerReservedConcurrency is set", _DEPLOY)
    elif facts.unreserved_concurrency >= _MIN_UNRESERVED + wanted + _SPARE_CONCURRENCY:
        yield warn(
            "the worker has no reserved concurrency: Lambda throttles it when the account is busy, which uses up the "
            "receives of its messages",
            f"deploy with WorkerReservedConcurrency={wanted + _SPARE_CONCURRENCY}, which this account has unreserved",
        )


def stopped_functions(facts: Facts) -> Iterator[Finding]:
    for one in facts.functions.values():
        if one.reserved == 0:
            yield problem(
                f"{one.logical_id} has a reserved concurrency of 0: Lambda never runs it",
                "an operator stopped it; start it with aws lambda delete-function-concurrency",
            )


def recursion(facts: Facts) -> Iterator[Finding]:
    for one in facts.recursion:
        if one.differs:
            yield problem(
                f"{one.function} has RecursiveLoop {one.deployed}, but the template {one.template}: "
                f"{_WHY_RECURSION.get(one.template, '')}",
                "set it with aws lambda put-function-recursion-config, or by a deployment that changes the function",
            )


def tables(facts: Facts) -> Iterator[Finding]:
    for name, (has, wanted) in facts.tables.items():
        if wanted.expires and not has.expires:
            yield problem(f"the TTL of {name} is disabled: its items do not expire", _DEPLOY)
        if wanted.recoverable and not has.recoverable:
            yield problem(f"point-in-time recovery of {name} is disabled: it cannot be restored", _DEPLOY)
        if wanted.protected and not has.protected:
            enable = "enable it with aws dynamodb update-table --deletion-protection-enabled"
            yield warn(f"deletion protection of {name} is disabled", enable)
        if missing := sorted(wanted.indexes - has.indexes):
            yield problem(
                f"{name} has no index {', '.join(missing)}: what reads it fails",
                "a local index exists from the creation of a table on: create the table again (docs/runbooks.md)",
            )


def rules(facts: Facts) -> Iterator[Finding]:
    for name, state in facts.rules.items():
        wanted = facts.template.get(name, {}).get("Properties", {}).get("State", "ENABLED")
        if wanted == "ENABLED" and not state.startswith("ENABLED"):
            janitor = ": slots of dead holders are not released" if name.startswith("Janitor") else ""
            yield problem(f"rule {name} is {state}{janitor}", "enable it with aws events enable-rule")


def stack_drift(facts: Facts) -> Iterator[Finding]:
    """Resources that CloudFormation finds changed. Runs only with --stack-drift, since it takes minutes."""
    for name, status in facts.drifted.items():
        if name == "RetryPolicyParameter" and status == "MODIFIED":
            continue  # operators change the retry policy there
        yield warn(f"{name} is {status}, compared with the template", "see the drift of the stack in CloudFormation")


CHECKS = (
    HealthCheck("stack", "the last deployment has finished, with this command's version", stack),
    HealthCheck("visibility", "visibility timeouts are at least six times the function's timeout", visibility),
    HealthCheck("redrive", "queues have their dead-letter queues, and its number of receives", redrive),
    HealthCheck("event-sources", "functions receive the messages of their queues, and report failed items", mappings),
    HealthCheck("starter-concurrency", "the concurrency of starts and ends is as deployed", starter_concurrency),
    HealthCheck("worker-concurrency", "the worker's concurrency is as in the parameters", worker_concurrency, "worker"),
    HealthCheck("functions", "no function has a reserved concurrency of 0", stopped_functions),
    HealthCheck("recursion", "the RecursiveLoop setting of each function is as in the template", recursion),
    HealthCheck("tables", "TTL, recovery, protection and indexes of tables are as in the template", tables),
    HealthCheck("rules", "schedules and event rules are enabled", rules),
)
DRIFT = HealthCheck("stack-drift", "resources are as in the template", stack_drift)
