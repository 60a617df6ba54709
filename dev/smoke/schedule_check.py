"""The check of EventBridge Scheduler, which brings the retries that are due after a quarter of an hour."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

from botocore.exceptions import ClientError

from dev.smoke.check_context import CheckContext
from dev.smoke.check_results import Failed, Skipped

PRECISION = 60  # seconds ("Schedule types in EventBridge Scheduler")
WAY = 30  # seconds from the schedule to the dead-letter queue, by the work queue and a cold worker


def schedule(context: CheckContext) -> str:
    """A one-time schedule, made as the worker makes them: does its message come, not too soon, and does it vanish?

    The message is none that the worker takes, so that no work is done: it sets it aside at once, and there we find it.
    """
    if "WorkerFunctionName" not in context.stack.outputs:
        raise Skipped("the worker is not deployed in this stack: deploy one with DeployWorker=true to check")
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
    context.undo.append((f"schedule {context.run}", lambda: _delete(context, named)))
    url = context.stack.outputs["WorkDeadLetterQueueUrl"]
    context.wait(
        lambda: context.messages.collect(url),
        "the schedule's message",
        context.timings.due + PRECISION + context.timings.start,
    )
    late = time.time() - at
    if late < 0:
        raise Failed(f"its message came {-late:.0f} s before its time")
    if late > PRECISION + WAY:
        raise Failed(f"its message came {late:.0f} s after its time, and not within {PRECISION + WAY}")
    schedule = "is still there" if _exists(context, named) else "is gone"
    return f"its message was through the worker {late:.0f} s after its time; the schedule {schedule}"


def _exists(context: CheckContext, named: dict[str, str]) -> bool:
    try:
        context.stack.client("scheduler").get_schedule(**named)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        return False
    return True


def _delete(context: CheckContext, named: dict[str, str]) -> None:
    try:
        context.stack.client("scheduler").delete_schedule(**named)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
