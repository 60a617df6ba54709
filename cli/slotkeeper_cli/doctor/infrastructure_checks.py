"""Checks of the deployment: queues, functions, event source mappings, tables and rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotkeeper import __version__
from slotkeeper_cli.conditions import stopped_event_source
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
        batch: the number of messages of a batch.
        concurrency: the parameter with the most invocations at the same time.
        alone: the effect if the function is missing.
    """

    function: str
    batch: int
    concurrency: str
    alone: str


_STARTS = "StarterConcurrency"
CONSUMERS = {
    "RequestQueue": QueueConsumer("StarterFunction", 10, _STARTS, "No request that is sent is queued or started."),
    "DispatchQueue": QueueConsumer(
        "StarterFunction", 10, _STARTS, "The janitor alone starts what is queued, once a minute."
    ),
    "EndingQueue": QueueConsumer(
        "EndingFunction", 10, _STARTS, "The janitor alone answers callers and publishes ends, once a minute."
    ),
    "WorkQueue": QueueConsumer("WorkerFunction", 1, "WorkerConcurrency", "No work of the worker is done."),
}
# The settings of an event source, and the effect of another value.
_OTHERWISE = {
    "BatchSize": "The function is made for this number.",
    "FunctionResponseTypes": "Messages that should stay are deleted.",
    "MaximumConcurrency": "It limits concurrent calls.",
}
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


def event_sources(account: Account, _now: float) -> Iterator[Finding]:
    absent = {flow.name for flow in account.stack.not_deployed}
    for queue, consumer in CONSUMERS.items():
        if queue == "WorkQueue" and "worker" in absent:
            continue
        mappings = account.event_sources(queue)
        changed = {one["UUID"]: one["LastModified"].timestamp() for one in mappings if "LastModified" in one}
        for stopped in stopped_event_source(queue, mappings):
            messages = int(account.queues().get(queue, {}).get("ApproximateNumberOfMessages", 0))
            waits = f" {count(messages, 'message is', 'messages are')} waiting there." * bool(messages)
            since = changed.get(stopped.get("uuid"))
            yield Finding("bad", stopped["text"], consumer.alone + waits, stopped.get("ends_by"), since=since)
        if len(mappings) > 1:
            what = f"{queue} has {len(mappings)} event source mappings, but should have one, of {consumer.function}"
            yield Finding("bad", what, f"Delete the others, which take messages from {consumer.function}.")
        for one in mappings:
            most = int(account.stack.parameters[consumer.concurrency])
            wanted = (consumer.batch, ["ReportBatchItemFailures"], most)
            for name, value in zip(_OTHERWISE, wanted, strict=True):
                if (has := (one | one.get("ScalingConfig", {})).get(name)) != value:
                    what = f"the event source of {queue} has {name} {has}, not {value}"
                    is_limited = name == "MaximumConcurrency" and has
                    yield Finding("warn" if is_limited else "bad", what, f"{_OTHERWISE[name]} {DEPLOY}")


def worker_concurrency(account: Account, _now: float) -> Iterator[Finding]:
    parameters, reserved = account.stack.parameters, readings.functions(account)["WorkerFunction"].reserved
    most = int(parameters["WorkerConcurrency"])
    throttled = "Lambda throttles it when the account is busy, which uses up the receives of its messages."
    if reserved is not None:
        if 0 < reserved <= most:
            what = f"the worker's reserved concurrency, {reserved}, is not above WorkerConcurrency, {most}"
            yield Finding("bad", what, f"{throttled} Deploy with a WorkerReservedConcurrency above WorkerConcurrency.")
    elif int(parameters.get("WorkerReservedConcurrency") or 0):
        yield Finding("warn", "the worker has no reserved concurrency, but WorkerReservedConcurrency is set", DEPLOY)
    elif readings.unreserved_concurrency(account) >= _MIN_UNRESERVED + most + _SPARE_CONCURRENCY:
        how = f"Deploy with WorkerReservedConcurrency={most + _SPARE_CONCURRENCY}, which this account has unreserved."
        yield Finding("warn", "the worker has no reserved concurrency", f"{throttled} {how}")


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


def rules(account: Account, _now: float) -> Iterator[Finding]:
    for name, state in readings.rules(account).items():
        wanted = readings.properties(account, name).get("State", "ENABLED")
        if wanted == "ENABLED" and not state.startswith("ENABLED"):
            janitor = "Slots of dead holders are not released. " * name.startswith("Janitor")
            yield Finding("bad", f"rule {name} is {state}", f"{janitor}Enable it with aws events enable-rule.")


def stack_drift(account: Account, _now: float) -> Iterator[Finding]:
    """Resources whose properties differ from the template and its parameters, such as queues and tables.

    Runs only with --stack-drift, since it takes minutes (CloudFormation API Reference, DetectStackDrift).
    """
    for name, status in drifted_resources(account.stack).items():
        if name == "RetryPolicyParameter" and status == "MODIFIED":
            continue  # operators change the retry policy there
        why = "See the drift of the stack in CloudFormation."
        yield Finding("warn", f"{name} is {status}, compared with the template", why)


CHECKS = (
    HealthCheck("event-sources", "functions receive the messages of their queues", event_sources, is_urgent=True),
    HealthCheck("stack", "the last deployment has finished, with this command's version", stack),
    HealthCheck("worker-concurrency", "Lambda does not throttle the worker", worker_concurrency, "worker"),
    HealthCheck("functions", "no function has a reserved concurrency of 0", functions),
    HealthCheck("recursion", "the RecursiveLoop setting of each function is as in the template", recursion),
    HealthCheck("rules", "schedules and event rules are enabled", rules),
)
DRIFT = HealthCheck("stack-drift", "resources are as in the template", stack_drift)
