"""Facts of EventBridge Scheduler and CloudWatch."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from tests.facts.account import Account
from tests.facts.facts import ASSUMED, EVERYWHERE, REAL, SIMULATED, Facts, NotShown, code_of

FACTS = Facts("schedules", EVERYWHERE)


def schedule(aws: Account, name: str, at: datetime, state: str = "DISABLED", **more: Any) -> str:
    """Create a schedule as the worker does: the error's code, or "accepted". A disabled one sends nothing."""
    group, target = "default", {"Arn": "queue", "RoleArn": aws.role}
    if aws.has_stack:
        if "WorkerFunctionName" not in aws.stack.outputs:
            raise NotShown("this stack has no worker; deploy one with DeployWorker=true to show it")
        worker = aws.stack.environment("WorkerFunctionName")
        group = worker["RETRY_SCHEDULE_GROUP"]
        target = {"Arn": worker["WORK_QUEUE_ARN"], "RoleArn": worker["RETRY_SCHEDULE_ROLE_ARN"]}
        more |= {"KmsKeyArn": aws.stack.outputs["KmsKeyArn"]} if "KmsKeyArn" in aws.stack.outputs else {}
    more |= {} if aws.place == SIMULATED else {"State": state}
    create = partial(
        aws.client("scheduler").create_schedule,
        Name=name,
        GroupName=group,
        ScheduleExpression=f"at({at:%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow={"Mode": "OFF"},
        ActionAfterCompletion="DELETE",
        Target=target | {"Input": json.dumps({"smoke": name})},
        **more,
    )
    return code_of(create)


@FACTS.row(
    "Scheduler refuses a second schedule of the same name as ConflictException.",
    source=ASSUMED,
    expected=["accepted", "ConflictException"],
    depends="R1: the worker takes a schedule that its lost call has created for its own. Otherwise change the code in "
    "retry/delivery.py",
)
def schedule_twice(aws: Account) -> list[str]:
    name, far = aws.name("twice"), datetime.now(UTC) + timedelta(days=300)
    return [schedule(aws, name, far) for _ in range(2)]


@FACTS.row(
    "Scheduler refuses a one-time schedule whose time has passed as ValidationException.",
    source=ASSUMED,
    expected="ValidationException",
    on=(SIMULATED, REAL),
    depends="the worker sends a message through the queue whose schedule was refused. If a late one is accepted and "
    "never delivered, its attempt is lost: raise MIN_SCHEDULE_AHEAD_SECONDS in retry/delivery.py",
)
def schedule_in_the_past(aws: Account) -> str:
    past = datetime.fromtimestamp(0, UTC) if aws.place == SIMULATED else datetime.now(UTC)
    return schedule(aws, aws.name("past"), past - timedelta(hours=1))


@FACTS.row(
    "FILL(metric, 0) gives zeros for a metric that has never had a data point.",
    source=ASSUMED,
    expected=lambda values: set(values) == {0.0},
    unlike=[],
    on=(REAL,),
    depends="StarterIdleAlarm rings in a stack whose event source has never received a message. Otherwise it stays "
    "silent until the first receive: use another metric",
)
def fill_without_data(aws: Account) -> list[float]:
    metric = {"Namespace": "Slotkeeper", "MetricName": aws.name("absent")}
    queries = [
        {"Id": "filled", "Expression": "FILL(absent, 0)"},
        {"Id": "absent", "ReturnData": False, "MetricStat": {"Metric": metric, "Period": 300, "Stat": "Sum"}},
    ]
    until = datetime.now(UTC)
    (result,) = aws.client("cloudwatch").get_metric_data(
        MetricDataQueries=queries, StartTime=until - timedelta(hours=1), EndTime=until
    )["MetricDataResults"]
    return list(result["Values"])
