"""The facts that the checks read; each is fetched once, on first use."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import batched
from typing import Any

from slotkeeper.retry.downstream.downstreams import MalformedHealth
from slotkeeper.retry.downstream.health import Health
from slotkeeper.retry.ledger import FAILED, RUNNING, WAITING, MalformedRow, Row
from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper.slots.request import process_of_execution
from slotkeeper.slots.rows import RequestRow
from slotkeeper.slots.targets import GLUE_JOB, STATE_MACHINE, TargetKind, kind_of
from slotkeeper.slots.work import CLOCK_DIFFERENCE_SECONDS
from slotkeeper_cli.holders import executions_of
from slotkeeper_cli.process_queue import ProcessQueue, QueuedRequest, read_queue
from slotkeeper_cli.retries import RetryControl, policy_text, read_downstreams
from slotkeeper_cli.slot_control import SlotControl, name_of
from slotkeeper_cli.stack_connection import (
    StackConnection,
    StackResource,
    all_queue_attributes,
    drifted_resources,
    event_source_mappings,
    in_parallel,
    resources,
    template_of,
)
from slotkeeper_cli.target_checks import allowed_jobs, allowed_machines, get_job, get_machine, usual_seconds

# Of a function without a setting (Lambda API Reference, GetFunctionRecursionConfig).
DEFAULT_RECURSION = "Terminate"
FUNCTION, TABLE, RULE = "AWS::Lambda::Function", "AWS::DynamoDB::Table", "AWS::Events::Rule"
ALARMS = ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm")
MAX_ROWS = 200_000  # rows of the ledger that are read
MAX_HOLDERS = 100  # oldest holders whose executions are described
_MAX_ALARM_NAMES = 100  # CloudWatch API Reference, DescribeAlarms, AlarmNames


@dataclass(frozen=True)
class FunctionSettings:
    """A function's timeout in seconds, and its reserved concurrency; None if it has none."""

    logical_id: str
    timeout: int
    reserved: int | None


@dataclass(frozen=True)
class RecursionSetting:
    """A function's setting of Lambda's recursive-loop detection."""

    function: str
    deployed: str
    template: str

    @property
    def differs(self) -> bool:
        return self.deployed != self.template


@dataclass(frozen=True)
class TableSettings:
    """What a table has, or should have by the template.

    Attributes:
        expires: a TTL.
        recoverable: point-in-time recovery.
        protected: deletion protection.
        indexes: the names of its secondary indexes.
    """

    expires: bool = False
    recoverable: bool = False
    protected: bool = False
    indexes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class UnpublishedEnds:
    """The ends of a process that are not published.

    Attributes:
        number: as text; `more than N` if not all were counted.
        oldest: the row that ended first, of those that were counted.
    """

    number: str
    oldest: RequestRow


@dataclass(frozen=True)
class StrandedRequest:
    """A request that was started, holds no slot, and whose execution does not run.

    Attributes:
        status: of its execution; empty if Step Functions has no such execution.
        since: when that ended, or when the request was accepted if there is none. Seconds since the epoch.
    """

    process: str
    execution: str
    status: str
    since: float


def function_settings(client: Any, function: StackResource) -> FunctionSettings:
    timeout = client.get_function_configuration(FunctionName=function.name)["Timeout"]
    reserved = client.get_function_concurrency(FunctionName=function.name).get("ReservedConcurrentExecutions")
    return FunctionSettings(function.logical_id, timeout, reserved)


def recursion_setting(client: Any, function: StackResource, template: Mapping[str, Any]) -> RecursionSetting:
    deployed = client.get_function_recursion_config(FunctionName=function.name)["RecursiveLoop"]
    wanted = template.get(function.logical_id, {}).get("Properties", {}).get("RecursiveLoop", DEFAULT_RECURSION)
    return RecursionSetting(function.logical_id, deployed, wanted)


def table_settings(client: Any, name: str) -> TableSettings:
    """The settings of a deployed table."""
    time_to_live = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    backups = client.describe_continuous_backups(TableName=name)["ContinuousBackupsDescription"]
    recovery = backups.get("PointInTimeRecoveryDescription", {}).get("PointInTimeRecoveryStatus")
    table = client.describe_table(TableName=name)["Table"]
    return TableSettings(
        time_to_live.get("TimeToLiveStatus") in ("ENABLED", "ENABLING"),
        recovery == "ENABLED",
        table.get("DeletionProtectionEnabled", False),
        _indexes(table),
    )


def wanted_settings(properties: Mapping[str, Any]) -> TableSettings:
    """The settings of a table in the template."""
    return TableSettings(
        _is_true(properties.get("TimeToLiveSpecification", {}).get("Enabled")),
        _is_true(properties.get("PointInTimeRecoverySpecification", {}).get("PointInTimeRecoveryEnabled")),
        _is_true(properties.get("DeletionProtectionEnabled")),
        _indexes(properties),
    )


def _indexes(table: Mapping[str, Any]) -> frozenset[str]:
    kinds = ("LocalSecondaryIndexes", "GlobalSecondaryIndexes")
    return frozenset(index["IndexName"] for kind in kinds for index in table.get(kind, []))


def describe_alarms(stack: StackConnection, among: Iterable[StackResource]) -> list[dict[str, Any]]:
    """The alarms of a stack's resources as CloudWatch describes them, each with its `LogicalId`."""
    ids = {one.name: one.logical_id for one in among if one.kind in ALARMS}
    client, alarms = stack.client("cloudwatch"), []
    for names in batched(ids, _MAX_ALARM_NAMES, strict=False):
        response = client.describe_alarms(AlarmNames=list(names), AlarmTypes=["MetricAlarm", "CompositeAlarm"])
        alarms += response.get("MetricAlarms", []) + response.get("CompositeAlarms", [])
    return [one | {"LogicalId": ids[one["AlarmName"]]} for one in alarms]


def first_step(alarm: Mapping[str, Any]) -> str:
    """What to do first: the template's descriptions end with it and the address of the runbook."""
    return str(alarm.get("AlarmDescription", "").partition("First step: ")[2])


def rule_state(client: Any, rule: StackResource) -> str:
    """The state of an EventBridge rule. The physical id of a rule on a custom bus is `bus|name`."""
    bus, _, name = rule.name.rpartition("|")
    return str(client.describe_rule(Name=name, **({"EventBusName": bus} if bus else {}))["State"])


def _is_true(value: Any) -> bool:
    """The truth of a template's property, which may be a text."""
    return str(value).lower() == "true"


@dataclass(frozen=True)
class HeldSlot:
    """A holder, its age in seconds, and the status of its execution; empty if Step Functions has no such execution.

    A lease has no execution, but `expired_for`, the seconds since any caller may remove it; negative before.
    """

    process: str
    execution: str
    age: float
    status: str
    expired_for: float | None = None


def due(queues: Iterable[ProcessQueue]) -> list[tuple[ProcessQueue, QueuedRequest]]:
    """The first request of each queue that a dispatch would start now, or end without a start."""
    found = []
    for queue in queues:
        names = ((each, {reason.name for reason in each.reasons}) for each in queue.requests)
        found += [(queue, each) for each, reasons in names if reasons & {"next", "skip", "too late"}][:1]
    return found


@dataclass(frozen=True)
class LedgerRows:
    """The rows of requests that have not ended, and whether all rows of the ledger were read."""

    rows: tuple[tuple[str, Row | MalformedRow], ...]
    all_of_them: bool


class Facts:
    """The facts of one stack. Errors of AWS pass through as ClientError or BotoCoreError."""

    def __init__(self, stack: StackConnection) -> None:
        self._stack = stack
        self._control = SlotControl(stack)
        self.now = time.time()

    @property
    def parameters(self) -> Mapping[str, str]:
        """The stack's parameters."""
        return self._stack.parameters

    @property
    def key(self) -> str:
        """The ARN of the stack's KMS key; empty if it has none."""
        return self.parameters.get("KmsKeyArn", "")

    @property
    def not_deployed(self) -> list[str]:
        """The flows without which the stack was deployed."""
        return [flow.name for flow in self._stack.not_deployed]

    @property
    def stack_status(self) -> str:
        return str(self._stack.description["StackStatus"])

    @property
    def stack_version(self) -> str:
        """The version of the deployed code."""
        return self._stack.outputs["SlotkeeperVersion"]

    @property
    def stack_age(self) -> float:
        """Seconds since the stack was created."""
        created: datetime = self._stack.description["CreationTime"]
        return self.now - created.timestamp()

    @cached_property
    def template(self) -> Mapping[str, Any]:
        """The deployed template's resources, by logical id."""
        resources: Mapping[str, Any] = template_of(self._stack)["Resources"]
        return resources

    @cached_property
    def drifted(self) -> dict[str, str]:
        """The resources that CloudFormation finds MODIFIED or DELETED, by logical id."""
        return drifted_resources(self._stack)

    # Slots ---------------------------------------------------------------------------------------------------------

    @cached_property
    def _processes(self) -> tuple[list[Process], list[MalformedProcess]]:
        return self._control.read_all()

    @property
    def processes(self) -> list[Process]:
        return self._processes[0]

    @property
    def malformed(self) -> list[MalformedProcess]:
        """An error for each item of SlotTable that is malformed."""
        return self._processes[1]

    @cached_property
    def queued(self) -> dict[str, ProcessQueue]:
        """The queue of each process, also of a malformed one, by the process's name."""
        return self.queues_of([*self.processes, *self.malformed])

    def queues_of(self, processes: Iterable[Process | MalformedProcess]) -> dict[str, ProcessQueue]:
        """The queues of these processes now, by their names."""
        rows, now = self._control.rows, time.time()
        return {each.name: each for each in in_parallel(lambda one: read_queue(rows, one, now), processes)}

    def idle(self) -> list[tuple[ProcessQueue, QueuedRequest]]:
        """The first request of each queue that can start or must leave, if it still could when it was read again."""
        seen = {queue.name: request.execution for queue, request in due(self.queued.values())}
        again = [one for one in (self._control.processes.all() if seen else ()) if name_of(one) in seen]
        return [each for each in due(self.queues_of(again).values()) if each[1].execution == seen[each[0].name]]

    @cached_property
    def stranded(self) -> list[StrandedRequest]:
        """The oldest requests that were started, hold no slot, and whose executions do not run."""
        found: list[StrandedRequest] = []
        for process in self.processes:
            opened = self._control.rows.open(process.name).rows
            unheld = [name for name, state in opened if state == "STARTED" and name not in process.holders]
            unheld = unheld[:MAX_HOLDERS]
            for name, execution in zip(unheld, in_parallel(self._control.workflow.describe, unheld), strict=True):
                if execution is None or execution.is_closed:
                    row = self._control.row_search.row(process.name, name)
                    if row is not None and row.state == "STARTED":
                        since = execution.stopped_at if execution else row.started
                        status = execution.status if execution else ""
                        found.append(StrandedRequest(process.name, name, status, since or self.now))
        return found

    @cached_property
    def unpublished(self) -> list[UnpublishedEnds]:
        """The ends that are not published, of each process that has some, also of a malformed one."""

        def of(process: Process | MalformedProcess) -> UnpublishedEnds | None:
            name = name_of(process)
            listed = self._control.rows.unpublished(name)
            # The index has the one that ended first at its end.
            row = self._control.row_search.row(name, listed.rows[-1][0]) if listed.rows else None
            number = f"more than {len(listed.rows):,}" if listed.is_cut else f"{len(listed.rows):,}"
            return UnpublishedEnds(number, row) if row and row.is_unpublished else None

        every: list[Process | MalformedProcess] = [*self.processes, *self.malformed]
        return [each for each in in_parallel(of, every) if each]

    @cached_property
    def unheld_runs(self) -> list[tuple[str, str, str]]:
        """Live Glue runs whose execution holds no slot, as (job, run, execution), of each job's newest 200 runs.

        Without the runs of the last minute, whose execution may have become a holder after the table was read, and
        without those of malformed processes, whose holders are not known.
        """
        read_at = time.time()
        processes, malformed = self._control.read_all()
        held = {name for process in processes for name in process.holders}
        unread = {one.process for one in malformed}
        names = [name for name, job in self.jobs.items() if job is not None]
        return [
            (job, run, execution)
            for job, runs in zip(names, in_parallel(self._live_runs, names), strict=True)
            for execution, started_at in runs.items()
            for run, started in started_at.items()
            if execution not in held and process_of_execution(execution) not in unread
            if started is not None and started < read_at - CLOCK_DIFFERENCE_SECONDS
        ]

    def _live_runs(self, job: str) -> dict[str, dict[str, float | None]]:
        search = self._control.glue.search_runs(job, time.time())
        search.read_page()
        return search.alive

    @cached_property
    def jobs(self) -> dict[str, dict[str, Any] | None]:
        """The Glue jobs of the processes, by name; None for a job that does not exist."""
        names = self._targets(GLUE_JOB)
        return dict(zip(names, in_parallel(lambda name: get_job(self._stack, name), names), strict=True))

    @cached_property
    def run_seconds(self) -> dict[str, float | None]:
        """How long the work of each process's target usually takes; None if no run of it is known."""
        targets = sorted({one.target for one in self.processes})
        return dict(zip(targets, in_parallel(lambda target: usual_seconds(self._stack, target), targets), strict=True))

    @cached_property
    def allowed_jobs(self) -> set[str]:
        """The names of the jobs that the workflow may run. A `*` at the end matches any ending."""
        return allowed_jobs(self._stack)

    @cached_property
    def machines(self) -> dict[str, dict[str, Any] | None]:
        """The state machines of the processes, by ARN; None for one that does not exist."""
        arns = self._targets(STATE_MACHINE)
        return dict(zip(arns, in_parallel(lambda arn: get_machine(self._stack, arn), arns), strict=True))

    def _targets(self, kind: TargetKind) -> list[str]:
        targets = {one.target for one in self.processes} - {NO_TARGET}
        return sorted(target for target in targets if kind_of(target) is kind)

    @cached_property
    def allowed_machines(self) -> set[str]:
        """The ARNs of the state machines that the workflow may start, with IAM's wildcards."""
        return allowed_machines(self._stack)

    @cached_property
    def held(self) -> list[HeldSlot]:
        """The oldest executions that hold slots, of all processes, and all leases."""
        ages = [(self.now - h.since, p.name, name) for p in self.processes for name, h in executions_of(p).items()]
        oldest = sorted(ages, reverse=True)[:MAX_HOLDERS]
        statuses = in_parallel(self.execution_status, [execution for _, _, execution in oldest])
        held = [HeldSlot(p, e, age, status) for (age, p, e), status in zip(oldest, statuses, strict=True)]
        return held + [
            HeldSlot(process.name, name, self.now - holder.since, "", self.now - holder.removable_from)
            for process in self.processes
            for name, holder in process.holders.items()
            if holder.removable_from is not None
        ]

    def execution_status(self, execution: str) -> str:
        """The status of an execution; empty if Step Functions has no such execution."""
        described = self._control.workflow.describe(execution)
        return described.status if described else ""

    # Infrastructure ------------------------------------------------------------------------------------------------

    @cached_property
    def queues(self) -> dict[str, dict[str, str]]:
        """The attributes of each queue, by logical id (GetQueueAttributes)."""
        return all_queue_attributes(self._stack)

    @cached_property
    def functions(self) -> dict[str, FunctionSettings]:
        """The functions by logical id."""
        client = self._stack.client("lambda")
        return self._each(FUNCTION, lambda one: function_settings(client, one))

    @cached_property
    def unreserved_concurrency(self) -> int:
        """The concurrent executions of the account that no function has reserved."""
        limit = self._stack.client("lambda").get_account_settings()["AccountLimit"]
        return int(limit["UnreservedConcurrentExecutions"])

    @cached_property
    def mappings(self) -> dict[str, list[dict[str, Any]]]:
        """The event source mappings of each queue that a function receives, by the queue's logical id."""
        consumed = ("RequestQueue", "DispatchQueue", "EndingQueue", "WorkQueue")
        queues = [queue for queue in consumed if queue in self.queues]
        return {queue: event_source_mappings(self._stack, self.queues[queue]["QueueArn"]) for queue in queues}

    @cached_property
    def recursion(self) -> list[RecursionSetting]:
        client, template = self._stack.client("lambda"), self.template
        return list(self._each(FUNCTION, lambda one: recursion_setting(client, one, template)).values())

    @cached_property
    def tables(self) -> dict[str, tuple[TableSettings, TableSettings]]:
        """The settings that each table has, and those that it should have, by logical id."""
        client, template = self._stack.client("dynamodb"), self.template

        def settings(table: StackResource) -> tuple[TableSettings, TableSettings]:
            wanted = template.get(table.logical_id, {}).get("Properties", {})
            return table_settings(client, table.name), wanted_settings(wanted)

        return self._each(TABLE, settings)

    @cached_property
    def rules(self) -> dict[str, str]:
        """The state of each EventBridge rule, by logical id."""
        client = self._stack.client("events")
        return self._each(RULE, lambda one: rule_state(client, one))

    # Notifications -------------------------------------------------------------------------------------------------

    @cached_property
    def alarms(self) -> list[dict[str, Any]]:
        """The stack's alarms, with their logical ids."""
        return describe_alarms(self._stack, self._resources)

    @cached_property
    def topic(self) -> dict[str, str]:
        """The attributes of the topic to which alarms publish."""
        arn = self._stack.outputs["FailureTopicArn"]
        response: dict[str, str] = self._stack.client("sns").get_topic_attributes(TopicArn=arn)["Attributes"]
        return response

    @cached_property
    def subscriptions(self) -> list[dict[str, str]]:
        pages = self._stack.client("sns").get_paginator("list_subscriptions_by_topic")
        arn = self._stack.outputs["FailureTopicArn"]
        return [one for page in pages.paginate(TopicArn=arn) for one in page["Subscriptions"]]

    def key_policy(self, key: str) -> Mapping[str, Any]:
        """The policy of a customer managed key."""
        response = self._stack.client("kms").get_key_policy(KeyId=key, PolicyName="default")
        policy: Mapping[str, Any] = json.loads(response["Policy"])
        return policy

    # Retries -------------------------------------------------------------------------------------------------------

    @cached_property
    def retry_policy(self) -> str | None:
        """The parameter's value; None if there is no such parameter."""
        return policy_text(self._stack)

    @cached_property
    def downstreams(self) -> dict[str, Health | MalformedHealth]:
        """The health of each downstream of the worker."""
        return read_downstreams(self._stack)

    @cached_property
    def rows(self) -> LedgerRows:
        page_sizes: list[int] = []
        rows: list[tuple[str, Row | MalformedRow]] = []
        for row in RetryControl(self._stack).ledger.rows((RUNNING, FAILED, WAITING), page_sizes.append):
            rows.append(row)
            if sum(page_sizes) >= MAX_ROWS:
                return LedgerRows(tuple(rows), all_of_them=False)
        return LedgerRows(tuple(rows), all_of_them=True)

    # ---------------------------------------------------------------------------------------------------------------

    @cached_property
    def _resources(self) -> list[StackResource]:
        return resources(self._stack)

    def _each[Fact](self, kind: str, fetch: Callable[[StackResource], Fact]) -> dict[str, Fact]:
        """A fact about each resource of a kind, by logical id."""
        of_kind = [one for one in self._resources if one.kind == kind]
        return dict(zip([one.logical_id for one in of_kind], in_parallel(fetch, of_kind), strict=True))
