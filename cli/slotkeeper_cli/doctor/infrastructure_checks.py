"""Checks of the deployment: queues, functions, event source mappings, tables and rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slotkeeper import __version__
from slotkeeper_cli.doctor import readings
from slotkeeper_cli.doctor.health_checks import DEPLOY, Finding, HealthCheck
from slotkeeper_cli.formatting import count
from slotkeeper_cli.stack_connection import drifted_resources

if TYPE_CHECKING:
    from slotkeeper_cli.account import Account


@dataclass(frozen=True)
class QueueConsumer:
    """How a function receives the messages of a queue.

    Attributes:
        dead_letters: the queue's dead-letter queue; empty if it has none.
        receives: after which SQS moves a message there.
        batch: the number of messages of a batch.
        alone: what happens without the function.
    """

    function: str
    dead_letters: str
    receives: int
    batch: int
    alone: str


CONSUMERS = {
    "RequestQueue": QueueConsumer(
        "StarterFunction", "RequestDeadLetterQueue", 20, 10, "No request that is sent is queued or started."
    ),
    "DispatchQueue": QueueConsumer(
        "StarterFunction", "", 0, 10, "The janitor alone starts what is queued, once a minute."
    ),
    "EndingQueue": QueueConsumer(
        "EndingFunction", "", 0, 10, "The janitor alone answers callers and publishes ends, once a minute."
    ),
    "WorkQueue": QueueConsumer("WorkerFunction", "WorkDeadLetterQueue", 1000, 1, "No work of the worker is done."),
}
_VISIBILITY_FACTOR = 6  # Lambda guide, "Configuring an SQS queue for use with Lambda"
_SPARE_CONCURRENCY = 2  # above WorkerConcurrency, so that Lambda does not throttle messages that it has received
_MIN_UNRESERVED = 100  # that an account must leave (Lambda API Reference, PutFunctionConcurrency)
# Template's RecursiveLoop -> its reason.
_WHY_RECURSION = {
    "Allow": "It sends to its own queue by design, and ends the chain itself.",
    "Terminate": "It is not designed to loop; Lambda stops a loop after about 16 invocations, and an alarm reports it.",
}


def stack(account: Account, _now: float) -> Iterator[Finding]:
    status, version = str(account.stack.description["StackStatus"]), account.stack.outputs["SlotkeeperVersion"]
    if status.endswith("_FAILED"):
        why = "See the events of the stack in CloudFormation, fix the cause, and deploy again."
        yield Finding("bad", f"the stack is {status}", why)
    elif status.endswith("_IN_PROGRESS"):
        yield Finding("warn", f"the stack is {status}", "Run this again when the deployment has finished.")
    if version != __version__:
        what = f"the stack has version {version}, but this command has {__version__}"
        yield Finding("warn", what, "Install the command of the stack's version, or deploy this version.")


def _consumed(account: Account) -> Iterator[tuple[str, QueueConsumer]]:
    """The entries of CONSUMERS whose queue is deployed."""
    absent = {flow.name for flow in account.stack.not_deployed}
    return (
        (queue, consumer) for queue, consumer in CONSUMERS.items() if queue != "WorkQueue" or "worker" not in absent
    )


def visibility(account: Account, _now: float) -> Iterator[Finding]:
    for queue, consumer in _consumed(account):
        seconds = int(account.queues()[queue]["VisibilityTimeout"])
        timeout = readings.functions(account)[consumer.function].timeout
        if seconds < _VISIBILITY_FACTOR * timeout:
            yield Finding(
                "bad",
                f"{queue} has a visibility timeout of {seconds} s, but {consumer.function} may run for {timeout} s",
                f"Set it to {_VISIBILITY_FACTOR * timeout} s, six times the function's timeout. {DEPLOY}",
            )


def redrive(account: Account, _now: float) -> Iterator[Finding]:
    queues = account.queues()
    for queue, consumer in _consumed(account):
        policy = json.loads(queues[queue].get("RedrivePolicy", "{}"))
        target, dead = str(policy.get("deadLetterTargetArn", "")), consumer.dead_letters
        if target != (queues[dead]["QueueArn"] if dead else ""):
            what = f"the dead-letter queue of {queue} is {target or 'missing'}, not {dead or 'none'}"
            yield Finding("bad", what, DEPLOY)
        elif int(policy.get("maxReceiveCount", 0)) < consumer.receives:
            what = f"{queue} dead-letters a message after {policy.get('maxReceiveCount')} receives"
            yield Finding("bad", what, f"Set maxReceiveCount to {consumer.receives}. {DEPLOY}")


def event_sources(account: Account, _now: float) -> Iterator[Finding]:
    for queue, consumer in _consumed(account):
        mappings = account.event_sources(queue)
        if len(mappings) != 1:
            number = count(len(mappings), "event source mapping")
            what = f"{queue} has {number}, but should have one, of {consumer.function}"
            others = f"Delete the others, which take messages from {consumer.function}."
            yield Finding("bad", what, others if mappings else f"{consumer.alone} {DEPLOY}")
        for one in mappings:
            yield from _mapping(account, queue, consumer, one)


def _mapping(account: Account, queue: str, consumer: QueueConsumer, one: dict[str, Any]) -> Iterator[Finding]:
    if one.get("State") not in ("Enabled", "Enabling", "Updating", "Creating"):
        number = int(account.queues()[queue].get("ApproximateNumberOfMessages", 0))
        changed = one.get("LastModified")
        yield Finding(
            "bad",
            f"the event source of {queue} is {one.get('State')}: {consumer.function} receives no messages",
            consumer.alone + f" {count(number, 'message is', 'messages are')} waiting there." * bool(number),
            f"aws lambda update-event-source-mapping --enabled --uuid {one.get('UUID')}",
            since=changed.timestamp() if changed else None,
        )
    if one.get("BatchSize") != consumer.batch:
        yield Finding(
            "bad",
            f"{consumer.function} receives batches of {one.get('BatchSize')} from {queue}, not of {consumer.batch}",
            f"Set BatchSize to {consumer.batch}. {DEPLOY}",
        )
    if "ReportBatchItemFailures" not in one.get("FunctionResponseTypes", []):
        yield Finding(
            "bad",
            f"the event source of {queue} does not report failed items: messages that should stay are deleted",
            f"Set FunctionResponseTypes to ReportBatchItemFailures. {DEPLOY}",
        )


def starter_concurrency(account: Account, _now: float) -> Iterator[Finding]:
    wanted = int(account.stack.parameters["StarterConcurrency"])
    for queue in ("RequestQueue", "DispatchQueue", "EndingQueue"):
        for one in account.event_sources(queue):
            most = one.get("ScalingConfig", {}).get("MaximumConcurrency")
            if most != wanted:
                what = f"the MaximumConcurrency of {queue}'s event source is {most}, but StarterConcurrency is {wanted}"
                yield Finding("warn", what, DEPLOY)


def worker_concurrency(account: Account, _now: float) -> Iterator[Finding]:
    parameters = account.stack.parameters
    wanted = int(parameters.get("WorkerConcurrency") or 3)
    reserved = readings.functions(account)["WorkerFunction"].reserved
    for one in account.event_sources("WorkQueue"):
        most = one.get("ScalingConfig", {}).get("MaximumConcurrency")
        if most is None:
            yield Finding(
                "bad",
                "the event source of WorkQueue has no MaximumConcurrency: concurrent calls are not limited",
                f"Set MaximumConcurrency to {wanted}. {DEPLOY}",
            )
        elif most != wanted:
            what = f"the worker's MaximumConcurrency is {most}, but WorkerConcurrency is {wanted}"
            yield Finding("warn", what, DEPLOY)
        if most is not None and reserved is not None and 0 < reserved <= most:
            yield Finding(
                "bad",
                f"the worker's reserved concurrency, {reserved}, is not above its MaximumConcurrency, {most}",
                "Lambda throttles some messages, which uses up their receives. Deploy with a WorkerReservedConcurrency "
                "above WorkerConcurrency.",
            )
    if reserved is not None:
        return
    if int(parameters.get("WorkerReservedConcurrency") or 0):
        yield Finding(
            "warn", "the worker has no reserved concurrency, although WorkerReservedConcurrency is set", DEPLOY
        )
    elif readings.unreserved_concurrency(account) >= _MIN_UNRESERVED + wanted + _SPARE_CONCURRENCY:
        yield Finding(
            "warn",
            "the worker has no reserved concurrency",
            "Lambda throttles it when the account is busy, which uses up the receives of its messages. Deploy with "
            f"WorkerReservedConcurrency={wanted + _SPARE_CONCURRENCY}, which this account has unreserved.",
        )


def functions(account: Account, _now: float) -> Iterator[Finding]:
    for name, one in readings.functions(account).items():
        if one.reserved == 0:
            what = f"{name} has a reserved concurrency of 0: Lambda never runs it"
            start = "An operator stopped it. Start it with: aws lambda delete-function-concurrency"
            yield Finding("bad", what, start)


def recursion(account: Account, _now: float) -> Iterator[Finding]:
    for name, one in readings.functions(account).items():
        wanted = readings.properties(account, name).get("RecursiveLoop", readings.DEFAULT_RECURSION)
        if one.recursion != wanted:
            what = f"{name} has RecursiveLoop {one.recursion}, but the template {wanted}"
            how = "Set it with aws lambda put-function-recursion-config, or deploy a change of the function."
            yield Finding("bad", what, f"{_WHY_RECURSION.get(wanted, '')} {how}")


def tables(account: Account, _now: float) -> Iterator[Finding]:
    for name, has in readings.tables(account).items():
        wanted = readings.wanted_settings(readings.properties(account, name))
        if wanted.expires and not has.expires:
            yield Finding("bad", f"the TTL of {name} is disabled: its items do not expire", DEPLOY)
        if wanted.recoverable and not has.recoverable:
            yield Finding("bad", f"point-in-time recovery of {name} is disabled: it cannot be restored", DEPLOY)
        if wanted.protected and not has.protected:
            enable = "Enable it with aws dynamodb update-table --deletion-protection-enabled."
            yield Finding("warn", f"deletion protection of {name} is disabled", enable)
        if missing := sorted(wanted.indexes - has.indexes):
            create = "A local index exists from the creation of a table on: create the table again (docs/runbooks.md)."
            yield Finding("bad", f"{name} has no index {', '.join(missing)}: what reads it fails", create)


def rules(account: Account, _now: float) -> Iterator[Finding]:
    for name, state in readings.rules(account).items():
        wanted = readings.properties(account, name).get("State", "ENABLED")
        if wanted == "ENABLED" and not state.startswith("ENABLED"):
            janitor = "Slots of dead holders are not released. " * name.startswith("Janitor")
            yield Finding("bad", f"rule {name} is {state}", f"{janitor}Enable it with aws events enable-rule.")


def stack_drift(account: Account, _now: float) -> Iterator[Finding]:
    """Resources that CloudFormation finds changed. Runs only with --stack-drift, since it takes minutes."""
    for name, status in drifted_resources(account.stack).items():
        if name == "RetryPolicyParameter" and status == "MODIFIED":
            continue  # operators change the retry policy there
        why = "See the drift of the stack in CloudFormation."
        yield Finding("warn", f"{name} is {status}, compared with the template", why)


CHECKS = (
    HealthCheck(
        "event-sources",
        "functions receive the messages of their queues, and report failed items",
        event_sources,
        is_urgent=True,
    ),
    HealthCheck("stack", "the last deployment has finished, with this command's version", stack),
    HealthCheck("visibility", "visibility timeouts are at least six times the function's timeout", visibility),
    HealthCheck("redrive", "queues have their dead-letter queues, and its number of receives", redrive),
    HealthCheck("starter-concurrency", "the concurrency of starts and ends is as deployed", starter_concurrency),
    HealthCheck("worker-concurrency", "the worker's concurrency is as in the parameters", worker_concurrency, "worker"),
    HealthCheck("functions", "no function has a reserved concurrency of 0", functions),
    HealthCheck("recursion", "the RecursiveLoop setting of each function is as in the template", recursion),
    HealthCheck("tables", "TTL, recovery, protection and indexes of tables are as in the template", tables),
    HealthCheck("rules", "schedules and event rules are enabled", rules),
)
DRIFT = HealthCheck("stack-drift", "resources are as in the template", stack_drift)
