"""The check of EventBridge Scheduler, which delivers the retries that are due after more than 15 minutes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime

from botocore.exceptions import ClientError

from dev.smoke.check_context import CheckContext
from dev.smoke.check_results import Failed, Skipped

PRECISION = 60  # seconds ("Schedule types in EventBridge Scheduler")
WAY = 30  # seconds from the schedule to the dead-letter queue, by the work queue and a cold worker


def schedule(context: CheckContext) -> str:
    """Create a one-time schedule as the worker does: its message should arrive on time, and the schedule be deleted.

    The message is not valid work, so the worker dead-letters it without an attempt, and the check collects it there.
    """
    if "WorkerFunctionName" not in context.stack.outputs:
        raise Skipped("this stack has no worker; to run this check, deploy a stack with DeployWorker=true")
    scheduler = context.stack.client("scheduler")
    worker = context.stack.environment("WorkerFunctionName")
    named = {"Name": context.run, "GroupName": worker["RETRY_SCHEDULE_GROUP"]}
    at = int(time.time() + context.timings.due)
    scheduler.create_schedule(
        **named,
        ScheduleExpression=f"at({datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow={"Mode": "OFF"},
        ActionAfterCompletion="DELETE",
        Target={
            "Arn": worker["WORK_QUEUE_ARN"],
            "RoleArn": worker["RETRY_SCHEDULE_ROLE_ARN"],
            "Input": json.dumps({"smoke": context.run}),
            "DeadLetterConfig": {"Arn": worker["RETRY_SCHEDULE_DEAD_LETTER_QUEUE_ARN"]},
        },
    )
    context.undo.append((f"schedule {context.run}", lambda: exists(scheduler.delete_schedule, named)))
    url = context.stack.outputs["WorkDeadLetterQueueUrl"]
    context.wait(
        lambda: context.messages.collect(url),
        "the schedule's message",
        context.timings.due + PRECISION + context.timings.start,
    )
    late = time.time() - at
    if late < 0:
        raise Failed(f"the message arrived {-late:.0f} s before its time")
    if late > PRECISION + WAY:
        raise Failed(f"the message arrived {late:.0f} s after its time; expected at most {PRECISION + WAY} s")
    schedule = "still exists" if exists(scheduler.get_schedule, named) else "was deleted"
    return f"the worker dead-lettered the message {late:.0f} s after its time; the schedule {schedule}"


def exists(call: Callable[..., object], named: dict[str, str]) -> bool:
    """Make a call of Scheduler; False if the schedule does not exist."""
    try:
        call(**named)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        return False
    return True
