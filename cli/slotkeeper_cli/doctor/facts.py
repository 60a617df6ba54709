"""The facts that the checks read; each is fetched once, on first use."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import batched
from typing import Any

from botocore.exceptions import ClientError

from slotkeeper.retry.ledger import FAILED, RUNNING, WAITING, MalformedRow, Row
from slotkeeper.slots.glue import CLOCK_DIFFERENCE_SECONDS, GlueRuns
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper_cli.commands.status import QUEUES
from slotkeeper_cli.errors import CommandFailed
from slotkeeper_cli.job_checks import allowed_jobs, get_job
from slotkeeper_cli.recursion_settings import RecursionSetting, settings
from slotkeeper_cli.retry_control import RetryControl
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.stack_resources import StackResource, resources, template_of

FUNCTION, TABLE, RULE = "AWS::Lambda::Function", "AWS::DynamoDB::Table", "AWS::Events::Rule"
ALARMS = ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm")
MAX_ROWS = 200_000  # of the ledger that are looked at
MAX_HOLDERS = 100  # whose executions are looked at, the oldest
_THREADS = 8
_DRIFT_POLLS, _DRIFT_PAUSE = 300, 2.0  # seconds between two polls: ten minutes altogether
_ALARMS_AT_ONCE = 100  # CloudWatch API Reference, DescribeAlarms, AlarmNames


@dataclass(frozen=True)
class FunctionSettings:
    """A function as Lambda has it. `reserved` is None where it has no concurrency of its own."""

    logical_id: str
    timeout: int
    reserved: int | None


@dataclass(frozen=True)
class TableSettings:
    """What a table has, and what the template says that it has."""

    logical_id: str
    expires: bool
    expires_wanted: bool
    recoverable: bool
    recoverable_wanted: bool


@dataclass(frozen=True)
class HeldSlot:
    """A holder, and the status of its execution; empty where Step Functions knows of none."""

    process: str
    execution: str
    age: float
    status: str


@dataclass(frozen=True)
class LedgerRows:
    """Of the ledger's rows those that something is still to become of, and whether all were looked at."""

    rows: tuple[tuple[str, Row | MalformedRow], ...]
    all_of_them: bool


class Facts:
    """The facts of one stack. Whatever AWS answers passes through as ClientError or BotoCoreError."""

    def __init__(self, stack: StackConnection) -> None:
        self._stack = stack
        self._control = SlotControl(stack)
        self.now = time.time()

    @property
    def parameters(self) -> Mapping[str, str]:
        """What the stack was deployed with."""
        return self._stack.parameters

    @property
    def not_deployed(self) -> list[str]:
        """The flows that the stack was deployed without."""
        return [flow.name for flow in self._stack.not_deployed]

    @property
    def stack_status(self) -> str:
        return str(self._stack.description["StackStatus"])

    @property
    def stack_age(self) -> float:
        """Seconds since the stack was created."""
        created: datetime = self._stack.description["CreationTime"]
        return self.now - created.timestamp()

    @cached_property
    def resources(self) -> list[StackResource]:
        return resources(self._stack)

    @cached_property
    def template(self) -> Mapping[str, Any]:
        """The deployed template's resources, by logical id."""
        resources: Mapping[str, Any] = template_of(self._stack)["Resources"]
        return resources

    @cached_property
    def drifted(self) -> dict[str, str]:
        """What CloudFormation finds changed, MODIFIED or DELETED, by logical id. It takes minutes.

        Raises:
            CommandFailed: drift detection did not complete.
        """
        client = self._stack.client("cloudformation")
        detection = client.detect_stack_drift(StackName=self._stack.name)["StackDriftDetectionId"]
        status = "DETECTION_IN_PROGRESS"
        for _ in range(_DRIFT_POLLS):
            response = client.describe_stack_drift_detection_status(StackDriftDetectionId=detection)
            status = response["DetectionStatus"]
            if status != "DETECTION_IN_PROGRESS":
                break
            time.sleep(_DRIFT_PAUSE)
        if status != "DETECTION_COMPLETE":
            raise CommandFailed(
                f"CloudFormation's drift detection is {status}: {response.get('DetectionStatusReason', 'try again')}"
            )
        token: dict[str, str] = {}
        drifted: dict[str, str] = {}
        while True:
            page = client.describe_stack_resource_drifts(
                StackName=self._stack.name, StackResourceDriftStatusFilters=["MODIFIED", "DELETED"], **token
            )
            for one in page["StackResourceDrifts"]:
                drifted[one["LogicalResourceId"]] = one["StackResourceDriftStatus"]
            if "NextToken" not in page:
                return drifted
            token = {"NextToken": page["NextToken"]}

    # Slots ---------------------------------------------------------------------------------------------------------

    @cached_property
    def processes(self) -> list[Process | MalformedProcess]:
        return list(self._control.processes.all())

    @cached_property
    def unheld_runs(self) -> list[tuple[str, str, str]]:
        """Live Glue runs whose execution holds no slot, as (job, run, execution), of each job's newest 200 runs.

        Of runs that began a minute before the table was read at least: who holds a slot by now may be too new for it.
        """
        read_at = time.time()
        now = self._control.processes.all()
        held = {name for one in now if isinstance(one, Process) for name in one.holders}
        names = [name for name, job in self.jobs.items() if job is not None]
        unheld: list[tuple[str, str, str]] = []
        for job, runs in zip(names, self._each(lambda job: _live_runs(self._control.glue, job), names), strict=True):
            for execution, mine in runs.items():
                old = [
                    run
                    for run, started in mine.items()
                    if started is not None and started < read_at - CLOCK_DIFFERENCE_SECONDS
                ]
                unheld += [(job, run, execution) for run in old if execution not in held]
        return unheld

    @cached_property
    def jobs(self) -> dict[str, dict[str, Any] | None]:
        """The Glue jobs of the processes, by name; None where there is no such job."""
        names = sorted({one.job_name for one in self.processes if isinstance(one, Process)})
        return dict(zip(names, self._each(lambda name: get_job(self._stack, name), names), strict=True))

    @cached_property
    def allowed_jobs(self) -> set[str]:
        """The jobs that the workflow may run, by name; * at the end stands for any ending."""
        return allowed_jobs(self._stack)

    @cached_property
    def held(self) -> list[HeldSlot]:
        """The oldest holders of all processes."""
        processes = [one for one in self.processes if isinstance(one, Process)]
        ages = [(self.now - h.since, p.name, name) for p in processes for name, h in p.holders.items()]
        oldest = sorted(ages, reverse=True)[:MAX_HOLDERS]
        statuses = self._each(self.execution_status, [execution for _, _, execution in oldest])
        return [HeldSlot(p, e, age, status) for (age, p, e), status in zip(oldest, statuses, strict=True)]

    def execution_status(self, execution: str) -> str:
        """Empty where Step Functions knows of no such execution."""
        described = self._control.workflow.describe(execution)
        return described.status if described else ""

    # What they run on ----------------------------------------------------------------------------------------------

    @cached_property
    def queues(self) -> dict[str, dict[str, str]]:
        """The attributes of each queue, by logical id (GetQueueAttributes)."""
        there = [output for output in QUEUES if output in self._stack.outputs]
        sqs = self._stack.client("sqs")

        def attributes(output: str) -> dict[str, str]:
            response = sqs.get_queue_attributes(QueueUrl=self._stack.outputs[output], AttributeNames=["All"])
            attributes_of_queue: dict[str, str] = response["Attributes"]
            return attributes_of_queue

        return {
            QUEUES[output]: queue_attributes
            for output, queue_attributes in zip(there, self._each(attributes, there), strict=True)
        }

    @cached_property
    def functions(self) -> dict[str, FunctionSettings]:
        """The functions by logical id."""
        client = self._stack.client("lambda")

        def describe(one: StackResource) -> FunctionSettings:
            configuration = client.get_function_configuration(FunctionName=one.name)
            reserved = client.get_function_concurrency(FunctionName=one.name).get("ReservedConcurrentExecutions")
            return FunctionSettings(one.logical_id, configuration["Timeout"], reserved)

        return {one.logical_id: one for one in self._each(describe, self._of(FUNCTION))}

    @cached_property
    def unreserved_concurrency(self) -> int:
        """How many of the account's concurrent executions no function has reserved."""
        limit = self._stack.client("lambda").get_account_settings()["AccountLimit"]
        return int(limit["UnreservedConcurrentExecutions"])

    @cached_property
    def mappings(self) -> dict[str, list[dict[str, Any]]]:
        """What takes messages from the two queues that functions work on, by the queue's logical id."""
        client = self._stack.client("lambda")

        def list_mappings(queue: str) -> list[dict[str, Any]]:
            pages = client.get_paginator("list_event_source_mappings")
            arn = self.queues[queue]["QueueArn"]
            return [one for page in pages.paginate(EventSourceArn=arn) for one in page["EventSourceMappings"]]

        return {queue: list_mappings(queue) for queue in ("RequestQueue", "WorkQueue") if queue in self.queues}

    @cached_property
    def recursion(self) -> list[RecursionSetting]:
        return settings(self._stack, {"Resources": self.template})

    @cached_property
    def tables(self) -> list[TableSettings]:
        client = self._stack.client("dynamodb")

        def describe(one: StackResource) -> TableSettings:
            lives = client.describe_time_to_live(TableName=one.name)["TimeToLiveDescription"]
            kept = client.describe_continuous_backups(TableName=one.name)["ContinuousBackupsDescription"]
            recovery = kept.get("PointInTimeRecoveryDescription", {}).get("PointInTimeRecoveryStatus")
            wanted = self.template.get(one.logical_id, {}).get("Properties", {})
            return TableSettings(
                one.logical_id,
                lives.get("TimeToLiveStatus") in ("ENABLED", "ENABLING"),
                is_true(wanted.get("TimeToLiveSpecification", {}).get("Enabled")),
                recovery == "ENABLED",
                is_true(wanted.get("PointInTimeRecoverySpecification", {}).get("PointInTimeRecoveryEnabled")),
            )

        return self._each(describe, self._of(TABLE))

    @cached_property
    def rules(self) -> dict[str, str]:
        """The state of each EventBridge rule, by logical id."""
        client = self._stack.client("events")

        def state(one: StackResource) -> str:
            bus, _, name = one.name.rpartition("|")
            return str(client.describe_rule(Name=name, **({"EventBusName": bus} if bus else {}))["State"])

        rules = self._of(RULE)
        return {one.logical_id: rule_state for one, rule_state in zip(rules, self._each(state, rules), strict=True)}

    # Who hears of it -----------------------------------------------------------------------------------------------

    @cached_property
    def alarms(self) -> list[dict[str, Any]]:
        """The stack's alarms, with their logical ids."""
        ids = {one.name: one.logical_id for one in self._of(*ALARMS)}
        client, alarms = self._stack.client("cloudwatch"), []
        for names in batched(ids, _ALARMS_AT_ONCE, strict=False):
            response = client.describe_alarms(AlarmNames=list(names), AlarmTypes=["MetricAlarm", "CompositeAlarm"])
            alarms += response.get("MetricAlarms", []) + response.get("CompositeAlarms", [])
        return [one | {"LogicalId": ids[one["AlarmName"]]} for one in alarms]

    @cached_property
    def topic(self) -> dict[str, str]:
        """The attributes of the topic that alarms go to."""
        arn = self._stack.outputs["FailureTopicArn"]
        response: dict[str, str] = self._stack.client("sns").get_topic_attributes(TopicArn=arn)["Attributes"]
        return response

    @cached_property
    def subscriptions(self) -> list[dict[str, str]]:
        pages = self._stack.client("sns").get_paginator("list_subscriptions_by_topic")
        arn = self._stack.outputs["FailureTopicArn"]
        return [one for page in pages.paginate(TopicArn=arn) for one in page["Subscriptions"]]

    @cached_property
    def topic_key_policy(self) -> Mapping[str, Any]:
        """The policy of the customer's key that the topic is encrypted with."""
        response = self._stack.client("kms").get_key_policy(KeyId=self.topic["KmsMasterKeyId"], PolicyName="default")
        policy: Mapping[str, Any] = json.loads(response["Policy"])
        return policy

    # Retries -------------------------------------------------------------------------------------------------------

    @cached_property
    def retry_policy(self) -> str | None:
        """The parameter's value; None if there is no such parameter."""
        name = self._stack.outputs["RetryPolicyParameterName"]
        try:
            return str(self._stack.client("ssm").get_parameter(Name=name)["Parameter"]["Value"])
        except ClientError as error:
            if error.response["Error"]["Code"] != "ParameterNotFound":
                raise
            return None

    @cached_property
    def rows(self) -> LedgerRows:
        rows_read = 0

        def count(rows: int) -> None:
            nonlocal rows_read
            rows_read += rows

        ledger_rows: list[tuple[str, Row | MalformedRow]] = []
        for row in RetryControl(self._stack).ledger.rows((RUNNING, FAILED, WAITING), count):
            ledger_rows.append(row)
            if rows_read >= MAX_ROWS:
                return LedgerRows(tuple(ledger_rows), all_of_them=False)
        return LedgerRows(tuple(ledger_rows), all_of_them=True)

    # ---------------------------------------------------------------------------------------------------------------

    def _of(self, *kinds: str) -> list[StackResource]:
        return [one for one in self.resources if one.kind in kinds]

    @staticmethod
    def _each[Input, Output](call: Callable[[Input], Output], inputs: Iterable[Input]) -> list[Output]:
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(call, inputs))


def _live_runs(glue: GlueRuns, job: str) -> dict[str, dict[str, float | None]]:
    search = glue.search_runs(job, time.time())
    search.read_page()
    return search.alive


def is_true(value: Any) -> bool:
    """Of a template's property, which may be a text."""
    return value is True or str(value).lower() == "true"
