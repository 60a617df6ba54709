"""Facts of DynamoDB, SQS, Glue, CloudWatch and EventBridge Scheduler, on items and resources of the check's own."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from dev.smoke import own_resources as own
from dev.smoke.check_context import CheckContext
from dev.smoke.facts import HAND_OFF, Fact, Failed, NotShown, refusal_of
from slotkeeper.slots.intake import accept
from slotkeeper.slots.outcomes import Outcomes
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.request import Request, execution_name
from slotkeeper.slots.request_table import Leaving, RequestTable

PRECISION = 60  # seconds ("Schedule types in EventBridge Scheduler")
WAY = 30  # seconds from the schedule to the dead-letter queue, by the work queue and a cold worker

# ------------------------------------------------------------------------------------------------ DynamoDB ("table")


def _slot_cycle(context: CheckContext) -> dict[str, Any]:
    """The answers to the deployed updates of ConfirmSlot and ReleaseSlot, for a holder of weight 2."""
    process, holder = f"{context.run}-{context.check}", "smoke"
    context.processes.append(process)
    dynamodb = context.stack.client("dynamodb")
    # No work is started, so a stack with another job has the fact too.
    job = context.stack.sample_job or "smoke"
    Processes(dynamodb, context.table).create(process, 3, job)
    if not context.slots.adopt(process, holder, time.time(), job, weight=2):
        raise Failed(f"the item of process {process} is missing from {context.table}")
    key = {"process_name": {"S": process}}
    answers: dict[str, Any] = {}
    for state, returned in (("ConfirmSlot", "UPDATED_NEW"), ("ReleaseSlot", "ALL_NEW")):
        arguments = context.stack.machine["definition"]["States"][state]["Arguments"]
        answers[state] = dynamodb.update_item(
            TableName=context.table,
            Key=key,
            UpdateExpression=arguments["UpdateExpression"],
            ConditionExpression=arguments["ConditionExpression"],
            ExpressionAttributeNames=arguments["ExpressionAttributeNames"] | {"#me": holder},
            ExpressionAttributeValues=arguments["ExpressionAttributeValues"],
            ReturnValues=returned,
        )["Attributes"]
    answers["size"] = refusal_of(
        lambda: dynamodb.update_item(
            TableName=context.table,
            Key=key,
            UpdateExpression="SET slot_limit = slot_limit",
            ConditionExpression="size(slot_limit) < :one",
            ExpressionAttributeValues={":one": {"N": "1"}},
        )
    )
    return answers


TABLE_FACTS = (
    Fact(
        "updated-new-of-a-nested-path",
        "What does UPDATED_NEW return after ConfirmSlot has changed two attributes inside a holder?",
        "holders.M.<holder>.M.job, with run_settings",
        "ConfirmSlot reads the process's target and its settings from the answer. Otherwise use ALL_NEW",
        lambda context: context.once(_slot_cycle)["ConfirmSlot"],
        lambda answer: "job" in answer["holders"]["M"]["smoke"]["M"] and "M" in answer["run_settings"],
    ),
    Fact(
        "set-with-remove",
        "Does SET read the holder's weight that REMOVE removes in the same update?",
        "yes: slots_in_use is 0 after the release of a weight of 2",
        "S1: ReleaseSlot subtracts the weight of the holder that it removes. Otherwise the counter drifts: read the "
        "weight first",
        lambda context: context.once(_slot_cycle)["ReleaseSlot"],
        lambda answer: (answer["slots_in_use"], answer["holders"]) == ({"N": "0"}, {"M": {}}),
    ),
    Fact(
        "size-of-a-number",
        "What does DynamoDB answer to size() of a number in a condition?",
        "ConditionalCheckFailedException: the condition is false",
        "F7: a malformed item admits nothing, and the starter reads it to find the reason. Otherwise handle the other "
        "error in slots/protocol.py",
        lambda context: context.once(_slot_cycle)["size"],
        lambda refusal: refusal.get("error") == "ConditionalCheckFailedException",
        not_here="the embedded AWS accepts it, which the simulated and the local DynamoDB do not",
    ),
)

# ------------------------------------------------------------------------------------------- RequestTable ("rows")

ROWS = 30  # of the check
AT_THE_SAME_TIME = 4  # threads


def _rows(context: CheckContext) -> tuple[RequestTable, str]:
    """RequestTable, and a process whose limit is 0 with queued rows that no message brought."""
    process = f"{context.run}-{context.check}"
    context.processes.append(process)
    dynamodb = context.stack.client("dynamodb")
    Processes(dynamodb, context.table).create(process, 0, context.stack.sample_job or "smoke")
    table = RequestTable(dynamodb, context.stack.outputs["RequestTableName"], context.table)
    for number in range(ROWS):
        accept(table, Request(process, {}, f"{number:02}"), f"smoke-{number}", time.time(), f"{number}", time.time())
    return table, process


def _index(context: CheckContext) -> dict[str, int]:
    """How often reads of the indexes `place` and `ended` miss a write right before them, of half of the rows."""
    table, process = context.once(_rows)
    outcomes = Outcomes(context.stack.client("dynamodb"), context.stack.outputs["RequestTableName"])
    began, stale = time.time() - 60, 0
    for number in range(ROWS // 2):
        name = execution_name(process, f"{number:02}", 1)
        outcomes.succeeded(process, name, time.time())
        stale += name in [each.execution for each in next(table.queue(process, 1, ROWS))]
        stale += name not in [each.execution for each in context.rows.history(process, began, began + 3600).rows]
    return {"rows": ROWS, "stale": stale, "left": len(next(table.queue(process, 1, ROWS)))}


def _refused_transaction(context: CheckContext) -> dict[str, Any]:
    """What a refused transaction names: the first row has ended, the second is queued."""
    table, process = context.once(_rows)
    context.once(_index)
    names = [execution_name(process, f"{number:02}", 1) for number in (0, ROWS - 1)]
    left = table.leave(
        process, [Leaving(name, "CANCELLED", "Cancelled", "by the check") for name in names], time.time()
    )
    return {"left": [each.execution for each in left], "expected": names[1:]}


def _failures(context: CheckContext) -> float:
    """Seconds until the index of failures contains a request that was too late."""
    table, process = context.once(_rows)
    now = time.time()
    name = execution_name(process, f"{ROWS - 2:02}", 1)
    if not table.leave(process, [Leaving(name, "TOO_LATE", "TooLate", "by the check")], now):
        raise Failed(f"{name} could not be ended")
    listed = context.rows.failures
    context.wait(lambda: listed(process, now - 60, now + 60).rows, "the index of failures", context.timings.start)
    return round(time.time() - now, 2)


def _conflicts(context: CheckContext) -> dict[str, int]:
    """The errors of single writes to a process's item while transactions write it, without retries by the SDK."""
    table, process = context.once(_rows)
    context.once(_index)
    key = {"process_name": {"S": process}}
    dynamodb = context.stack.client("dynamodb")
    done = threading.Event()

    def write() -> Counter[str]:
        errors: Counter[str] = Counter()
        while not done.is_set():
            refusal = refusal_of(
                lambda: dynamodb.update_item(
                    TableName=context.table,
                    Key=key,
                    UpdateExpression="SET grants = grants + :one",
                    ExpressionAttributeValues={":one": {"N": "1"}},
                )
            )
            errors[refusal.get("error", "none")] += 1
        return errors

    with ThreadPoolExecutor(AT_THE_SAME_TIME) as pool:
        writes = [pool.submit(write) for _ in range(AT_THE_SAME_TIME)]
        try:
            for number in range(ROWS // 2, ROWS - 2):
                name = execution_name(process, f"{number:02}", 1)
                table.leave(process, [Leaving(name, "CANCELLED", "Cancelled", "by the check")], time.time())
        finally:
            done.set()
        errors = sum((each.result() for each in writes), Counter())
    if not errors.keys() - {"none"}:
        raise NotShown(f"{errors['none']} writes met no transaction")
    return dict(errors)


ROW_FACTS = (
    Fact(
        "consistent-read-of-a-local-index",
        "Does a consistent read of a sparse local index contain every write before it?",
        "yes: no row that has lost `place` is read, and each that has ended is in the history",
        "S7: a dispatch starts no request that has ended. Otherwise each row must be read before its start",
        lambda context: context.once(_index),
        lambda answer: (answer["stale"], answer["left"]) == (0, ROWS - ROWS // 2),
    ),
    Fact(
        "index-of-failures",
        "How soon does the global index contain a failure?",
        f"within {HAND_OFF:.0f} s",
        "`slotkeeper failed` lists it. A later one only delays what operators see",
        _failures,
        lambda late: late <= HAND_OFF,
    ),
    Fact(
        "refused-transaction",
        "Does a refused transaction name the items whose conditions were refused?",
        "yes: the others are repeated, and succeed",
        "cancels and deadlines of many requests. Otherwise slots/request_table.py must read each row after a refusal",
        _refused_transaction,
        lambda answer: answer["left"] == answer["expected"],
    ),
    Fact(
        "transaction-conflict",
        "Which error has a single write to an item that a transaction writes?",
        "TransactionConflictException, and no other",
        "confirm, record, release and grants repeat it by this name. Otherwise change the name in aws/dynamodb.py and "
        "in every Retry of the workflow",
        _conflicts,
        lambda errors: errors.keys() <= {"none", "TransactionConflictException"},
        not_here="the embedded AWS has no such conflict",
    ),
)

# --------------------------------------------------------------------------------------------------- SQS ("queues")

DELAY = 3  # seconds


def _delayed(context: CheckContext) -> dict[str, float]:
    """Seconds from the sending of a message with a delay to its receipt, and of one without that was sent after it."""
    sqs = context.stack.client("sqs")
    url = own.queue(context, "delayed")
    sent = time.time()
    sqs.send_message(QueueUrl=url, MessageBody="delayed", DelaySeconds=DELAY)
    sqs.send_message(QueueUrl=url, MessageBody="immediate")
    received: dict[str, float] = {}
    while len(received) < 2:
        message = own.receive(context, url, "a message")
        received[message["Body"]] = round(time.time() - sent, 2)
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return received


QUEUE_FACTS = (
    Fact(
        "delay-of-a-message",
        "Standard queue: is a message with DelaySeconds received at its time, and one without before it?",
        f"yes: not before {DELAY} s, and within 10 s",
        "a timed ring comes at its time. A later one delays starts by a rate and ends by a deadline; the janitor's "
        "next run does both",
        _delayed,
        lambda seconds: seconds["immediate"] < seconds["delayed"] and DELAY - 0.5 <= seconds["delayed"] <= 10,
    ),
)

# ---------------------------------------------------------------------------------------------------- Glue ("glue")


def _job(context: CheckContext) -> str:
    """Create a job with the sample job's script and role, of which one run at a time is permitted."""
    glue, name = context.stack.client("glue"), own.name_of(context, "job")
    sample = glue.get_job(JobName=context.job)["Job"]
    kept = ("Role", "Command", "DefaultArguments", "MaxCapacity", "GlueVersion", "Timeout")
    glue.create_job(
        Name=name,
        ExecutionProperty={"MaxConcurrentRuns": 1},
        MaxRetries=0,
        **{key: sample[key] for key in kept if sample.get(key)},
    )
    context.undo.append((f"Glue job {name}", lambda: glue.delete_job(JobName=name)))
    return name


def _run_glue_job(context: CheckContext, job: str) -> str:
    """Create a machine with the deployed RunGlueJob, and a role for this job."""
    actions = ["glue:StartJobRun", "glue:GetJobRun", "glue:GetJobRuns", "glue:BatchStopJobRun"]
    role = own.role(context, "glue-role", (actions, "glue", f"job/{job}"))
    states = {"RunGlueJob": context.stack.machine["definition"]["States"]["RunGlueJob"]}
    return own.machine(context, "glue", own.chain(states, {"target": job, "timeout_minutes": 10}), role)


def _glue(context: CheckContext) -> dict[str, Any]:
    """Two runs: one that fails, since its arguments are missing, and one that is alive while another one is refused."""
    glue, job = context.stack.client("glue"), context.once(_job)
    machine = _run_glue_job(context, job)

    def error_of(name: str) -> dict[str, Any]:
        execution = own.ended(context, own.start(context, machine, name, {"arguments": {}}))
        answer: dict[str, Any] = json.loads(execution["output"])["RunGlueJob"]
        return answer

    failed = error_of("failed")
    alive = context.wait(lambda: _started(context, job), "Glue to permit another run", context.timings.start)
    context.undo.append((f"run {alive}", lambda: glue.batch_stop_job_run(JobName=job, JobRunIds=[alive])))
    refused = error_of("refused")
    runs = glue.get_job_runs(JobName=job, MaxResults=10)["JobRuns"]
    return {"failed": failed, "refused": refused, "started": [str(run["StartedOn"]) for run in runs]}


def _started(context: CheckContext, job: str) -> str:
    """Start a run that lingers; "" while Glue still counts the one before."""
    arguments = {"--input_key": "smoke", "--output_key": "smoke", "--linger_seconds": "60"}
    try:
        return str(context.stack.client("glue").start_job_run(JobName=job, Arguments=arguments)["JobRunId"])
    except ClientError as error:
        if error.response["Error"]["Code"] != "ConcurrentRunsExceededException":
            raise
        return ""


def _failure(context: CheckContext) -> dict[str, Any]:
    """The error of a failed run, the order of its cause's keys, and what the workflow reads from the cause."""
    error = context.once(_glue)["failed"]
    if not error.get("Cause", "").startswith("{"):
        return dict(error)
    cause = json.loads(error["Cause"])
    read = {name: cause.get(name) for name in ("JobRunState", "ErrorMessage")}
    return {"error": error["Error"], "keys": [*cause], **read}


GLUE_FACTS = (
    Fact(
        "cause-of-a-failed-run",
        "Which error and cause has glue:startJobRun.sync when the run fails?",
        "States.TaskFailed; the cause is the run as JSON, its keys in alphabetical order, with ErrorMessage",
        "the mail, the event and the row state the reason. Otherwise change failure_reason in slots/executions.py",
        _failure,
        lambda answer: (
            (answer["error"], answer["JobRunState"]) == ("States.TaskFailed", "FAILED")
            and answer["keys"] == sorted(answer["keys"])
            and bool(answer["ErrorMessage"])
        ),
    ),
    Fact(
        "too-many-runs",
        "Which error does glue:startJobRun.sync return when the job has its maximum of runs?",
        "Glue.ConcurrentRunsExceededException",
        "F3: RunGlueJob retries it in its slot. Otherwise change the name in RunGlueJob and IsGlueRunKnownToHaveEnded",
        lambda context: context.once(_glue)["refused"],
        lambda answer: answer.get("Error") == "Glue.ConcurrentRunsExceededException",
    ),
    Fact(
        "order-of-runs",
        "In which order does GetJobRuns return runs?",
        "the newest first",
        "FindGlueRun ends its search at the first page whose runs are older than the execution. Otherwise it must "
        "read all pages",
        lambda context: context.once(_glue)["started"],
        lambda started: len(started) == 2 and started == sorted(started, reverse=True),
    ),
)

# --------------------------------------------------------------------------- CloudWatch and Scheduler ("schedules")


def _filled(context: CheckContext) -> dict[str, Any]:
    """FILL of a metric that has never had a data point, over an hour."""
    metric = {"Namespace": "Slotkeeper", "MetricName": own.name_of(context, "absent")}
    queries = [
        {"Id": "filled", "Expression": "FILL(absent, 0)"},
        {"Id": "absent", "ReturnData": False, "MetricStat": {"Metric": metric, "Period": 300, "Stat": "Sum"}},
    ]
    until = datetime.now(UTC)
    (result,) = context.stack.client("cloudwatch").get_metric_data(
        MetricDataQueries=queries, StartTime=until - timedelta(hours=1), EndTime=until
    )["MetricDataResults"]
    return {"values": result["Values"], "status": result["StatusCode"]}


def _schedule(context: CheckContext, suffix: str, at: datetime, state: str = "DISABLED") -> dict[str, str]:
    """Create a schedule as the worker does; its refusal, or an empty object. A disabled one sends nothing."""
    if "WorkerFunctionName" not in context.stack.outputs:
        raise NotShown("this stack has no worker; to run this check, deploy a stack with DeployWorker=true")
    scheduler, worker = context.stack.client("scheduler"), context.stack.environment("WorkerFunctionName")
    named = {"Name": own.name_of(context, suffix), "GroupName": worker["RETRY_SCHEDULE_GROUP"]}
    encrypted = {"KmsKeyArn": context.stack.outputs["KmsKeyArn"]} if "KmsKeyArn" in context.stack.outputs else {}
    refusal = refusal_of(
        lambda: scheduler.create_schedule(
            **named,
            **encrypted,
            ScheduleExpression=f"at({at:%Y-%m-%dT%H:%M:%S})",
            FlexibleTimeWindow={"Mode": "OFF"},
            ActionAfterCompletion="DELETE",
            State=state,
            Target={
                "Arn": worker["WORK_QUEUE_ARN"],
                "RoleArn": worker["RETRY_SCHEDULE_ROLE_ARN"],
                "Input": json.dumps({"smoke": context.run}),
                "DeadLetterConfig": {"Arn": worker["RETRY_SCHEDULE_DEAD_LETTER_QUEUE_ARN"]},
            },
        )
    )

    def remove() -> None:
        try:
            scheduler.delete_schedule(**named)
        except ClientError as error:  # it may have sent its message and deleted itself
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise

    if not refusal:
        context.undo.append((f"schedule {named['Name']}", remove))
    return refusal


def _delivered(context: CheckContext) -> str:
    """The message is not valid work, so the worker dead-letters it without an attempt, and the check collects it."""
    at = int(time.time() + context.timings.due)
    if refusal := _schedule(context, "due", datetime.fromtimestamp(at, UTC), "ENABLED"):
        raise Failed(f"the schedule was refused: {refusal}")
    url = context.stack.outputs["WorkDeadLetterQueueUrl"]
    longest = context.timings.due + PRECISION + context.timings.start
    context.wait(lambda: context.messages.collect(url), "the schedule's message", longest)
    late = time.time() - at
    if not 0 <= late <= PRECISION + WAY:
        raise Failed(f"the message arrived {late:.0f} s after its time; expected 0 to {PRECISION + WAY} s")
    return f"the worker dead-lettered the message {late:.0f} s after its time"


def _conflict(context: CheckContext) -> dict[str, str]:
    far = datetime.now(UTC) + timedelta(days=300)
    first = _schedule(context, "twice", far)
    return first or _schedule(context, "twice", far)


def _keys(context: CheckContext) -> dict[str, str]:
    if not (key := context.stack.outputs.get("KmsKeyArn", "")):
        raise NotShown("this stack has no key of yours; to run this check, deploy a stack with KmsKeyArn")
    if refusal := _schedule(context, "own-key", datetime.now(UTC) + timedelta(days=300)):
        return refusal
    group = context.stack.environment("WorkerFunctionName")["RETRY_SCHEDULE_GROUP"]
    schedule = context.stack.client("scheduler").get_schedule(Name=own.name_of(context, "own-key"), GroupName=group)
    workflow = context.stack.machine["encryptionConfiguration"]
    return {"stack": key, "workflow": workflow.get("kmsKeyId", ""), "schedule": schedule.get("KmsKeyArn", "")}


SCHEDULE_FACTS = (
    Fact(
        "your-key",
        "With KmsKeyArn, which key encrypts the workflow's executions and a schedule?",
        "that key",
        "docs/encryption.md. The other checks of this stack show that the roles and the log delivery may use the key",
        _keys,
        lambda keys: keys["workflow"] == keys["schedule"] == keys["stack"],
        not_here="its stack has no key",
    ),
    Fact(
        "schedule",
        "When does a schedule's message arrive?",
        f"in the {PRECISION} s after its time, and not before",
        "retries that are due after more than 15 minutes (Scheduler guide, Schedule types in EventBridge Scheduler)",
        _delivered,
    ),
    Fact(
        "schedule-twice",
        "With which error does Scheduler refuse a second schedule of the same name?",
        "ConflictException",
        "R1: the worker takes a schedule that its lost call has created for its own. Otherwise change the code in "
        "retry/delivery.py",
        _conflict,
        lambda refusal: refusal.get("error") == "ConflictException",
    ),
    Fact(
        "schedule-in-the-past",
        "What does Scheduler answer to a one-time schedule whose time has passed?",
        "ValidationException: nothing is created",
        "the worker sends a message through the queue whose schedule was refused. If a late one is accepted and never "
        "delivered, its attempt is lost: raise MIN_SCHEDULE_AHEAD_SECONDS in retry/delivery.py",
        lambda context: _schedule(context, "past", datetime.now(UTC) - timedelta(hours=1)),
        lambda refusal: refusal.get("error") == "ValidationException",
        not_here="the embedded AWS accepts it and delivers it",
    ),
    Fact(
        "fill-without-data",
        "Does FILL(metric, 0) give zeros for a metric that has never had a data point?",
        "yes",
        "StarterIdleAlarm rings in a stack whose event source has never received a message. Otherwise it stays silent "
        "until the first receive: use another metric",
        _filled,
        lambda answer: bool(answer["values"]) and set(answer["values"]) == {0.0},
        not_here="the embedded AWS evaluates no metric math",
    ),
)
