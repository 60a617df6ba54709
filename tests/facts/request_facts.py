"""Facts about the deployed stack: requests are sent as a producer does, with the sample job."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

from slotkeeper.slots.executions import SLOT_LOST
from slotkeeper.slots.request import execution_name, process_of_execution
from slotkeeper.slots.rows import RequestRow
from tests.facts.facts import ASSUMED, DEPLOYED, HAND_OFF, REAL, Facts, Failed, NotShown
from tests.facts.machines import Machines, task
from tests.facts.requests import ALIVE, Requests, error_of
from tests.facts.schedule_facts import schedule

FACTS = Facts("requests", DEPLOYED, given=Requests)
CHAIN, CHAIN_STEP = 20, 2  # rings of one chain, and the seconds between two; Lambda's loop detection ends one at 16
CHAIN_AFTER = 30  # seconds until the first one: all requests must be queued before
PRECISION = 60  # seconds ("Schedule types in EventBridge Scheduler")
WAY = 30  # seconds from the schedule to the dead-letter queue, by the work queue and a cold worker
RETURN = 20  # seconds until another message of a dead-letter queue is visible again, if this program dies
BATCHES = 20  # receives at most, if a queue has many other messages


@FACTS.row(
    f"A queued request starts within {HAND_OFF:.0f} s of a release: Ring sends a message to the starter's second event "
    "source, whose long poll receives it immediately.",
    source="documented: Lambda guide, Using Lambda with Amazon SQS; the time is assumed",
    expected=lambda seconds: seconds <= HAND_OFF,
    unlike=58.1,
    depends="S6. Otherwise only the janitor starts what waits",
)
def ring(requests: Requests) -> float:
    wait, process = requests.aws.wait, requests.process()
    first = requests.arn(requests.send(process, "first", requests.timings.hold))
    wait(lambda: requests.execution(first)["status"] == "RUNNING", "the first request to start")
    second = requests.arn(requests.send(process, "second", 0))

    def waits() -> bool:
        if requests.execution(first)["status"] != "RUNNING":
            raise NotShown("the first request ended before the second one was refused, so no request waited")
        return bool(requests.rows.queue(process).rows)

    wait(waits, "the second request to be queued")
    requests.wait_for_end(first, "SUCCEEDED")
    started: float = requests.wait_for_end(second, "SUCCEEDED")["startDate"].timestamp()
    return round(started - requests.times(first, "Exited")["ReleaseSlot"], 2)


@FACTS.row(
    f"A chain of {CHAIN} dispatches that ring for each other continues: each deadline is met within {HAND_OFF:.0f} s, "
    "and the starter's recursive loops are allowed.",
    source="documented: Lambda guide, Use Lambda recursive loop detection to prevent infinite loops",
    expected=lambda seen: max(seen["late"]) <= HAND_OFF and seen["recursion"] == "Allow",
    unlike={"late": [0.1, 59.0], "recursion": "Allow"},
    depends="deadlines and rates: Lambda stops a loop through SQS after 16 invocations. Otherwise check RecursiveLoop "
    "of the starter; the janitor's runs meet deadlines by a minute",
)
def chain_of_rings(requests: Requests) -> dict[str, Any]:
    """The requests wait in a paused process, each of them is ended by a ring that the dispatch before it sent."""
    process = requests.process()
    requests.processes.pause(process)
    first = time.time() + CHAIN_AFTER
    until = [datetime.fromtimestamp(first + number * CHAIN_STEP, UTC).isoformat() for number in range(CHAIN)]
    names = [requests.send(process, f"{number}", 0, start_before=at) for number, at in enumerate(until)]

    def ended() -> list[RequestRow]:
        rows = [row for name in names if (row := requests.row(name)) and row.state == "TOO_LATE"]
        return rows if len(rows) == len(names) else []

    longest = requests.timings.start + CHAIN_AFTER + CHAIN * CHAIN_STEP
    rows = requests.aws.wait(ended, "the last deadline", longest)
    late = [round((row.ended or 0) - (row.start_before or 0), 1) for row in rows]
    function = requests.stack.outputs["StarterFunctionName"]
    recursion = requests.aws.client("lambda").get_function_recursion_config(FunctionName=function)["RecursiveLoop"]
    return {"late": late, "recursion": recursion}


@FACTS.row(
    "GetJobRuns lists a run within CheckGapSeconds of StartJobRun's answer.",
    source=ASSUMED,
    expected=lambda seen: seen["late"] < seen["gap"],
    unlike={"late": 31.0, "gap": 30.0},
    on=(REAL,),
    depends="S1b: a slot is freed after two checks without a live run, which may both miss a later one. AWS documents "
    "no bound: raise CheckGapSeconds",
)
def listing(requests: Requests) -> dict[str, float]:
    name = requests.send(requests.process(), "only", 0)
    arn = requests.arn(name)
    requests.aws.wait(lambda: requests.execution(arn)["status"] != "NONE", "its start")
    answered = listed = 0.0

    def both() -> bool:
        nonlocal answered, listed
        listed = listed or (time.monotonic() if requests.glue_run(name) else 0.0)
        submitted = answered or any(event["type"] == "TaskSubmitted" for event in requests.history(arn))
        answered = answered or (time.monotonic() if submitted else 0.0)
        return bool(answered and listed)

    requests.aws.wait(both, "Glue to list its run")
    late = round(max(0.0, listed - answered) + requests.timings.poll, 1)
    requests.wait_for_end(arn, "SUCCEEDED")
    return {"late": late, "gap": requests.stack.check_gap}


@FACTS.row(
    "The error of a stopped Glue run states that it has ended, so that its slot is freed without a search, and the "
    f"failure is published within {HAND_OFF:.0f} s. The workflow's log, which has no execution data, names the error.",
    source="documented: Step Functions guide, Start an AWS Glue job; of the log nothing is",
    expected=lambda seen: (
        not seen["searched"] and seen["log"] and not seen["holders"] and seen["published"] <= HAND_OFF
    ),
    unlike={"searched": False, "log": False, "holders": [], "published": 0.5},
    depends="the slot is freed in seconds, and GlueRefusalAlarm counts errors in the log: otherwise it cannot go off",
)
def stopped(requests: Requests) -> dict[str, Any]:
    process = requests.process()
    name = requests.send(process, "only", requests.timings.long)
    run, arn = requests.wait_until_alive(name), requests.arn(name)
    requests.aws.client("glue").batch_stop_job_run(JobName=requests.job, JobRunIds=[run["Id"]])
    requests.wait_for_end(arn, "FAILED")
    published = _published(requests, name, "FAILED")
    return {
        "searched": "WaitForGlueRun" in requests.times(arn),
        "log": requests.stack.local or _is_error_logged(requests, arn),  # the embedded AWS writes no such log
        "holders": [*requests.item(process).holders],
        "published": published,
    }


def _is_error_logged(requests: Requests, arn: str) -> bool:
    """Whether the workflow's log names the error of a failed task."""
    (destination,) = requests.stack.machine["loggingConfiguration"]["destinations"]
    group = destination["cloudWatchLogsLogGroup"]["logGroupArn"].partition(":log-group:")[2].removesuffix(":*")
    pattern = f'{{ ($.execution_arn = "{arn}") && ($.type = "TaskFailed") }}'
    pages = requests.aws.client("logs").get_paginator("filter_log_events")

    def logged() -> list[dict[str, Any]]:
        found = pages.paginate(logGroupName=group, filterPattern=pattern)
        return [json.loads(event["message"]) for page in found for event in page["events"]]

    events = requests.aws.wait(logged, "the failed task in the workflow's log")
    return any(event.get("details", {}).get("error") for event in events)


@FACTS.row(
    "The redrive of an aborted execution begins at RunGlueJob, with a RedriveCount of 1: it starts no second run, the "
    "slot is released after the run's end, and the request is queued again and succeeds.",
    source="documented: Step Functions guide, Restarting state machine executions with redrive",
    expected={"error": SLOT_LOST, "starts": 1, "again": "SUCCEEDED"},
    depends="F4. Otherwise put a Choice state before RunGlueJob",
)
def redrive(requests: Requests) -> dict[str, Any]:
    process = requests.process()
    name, again = requests.send(process, "only", requests.timings.hold), execution_name(process, "only", 2)
    arn, stepfunctions = requests.arn(name), requests.aws.client("stepfunctions")
    requests.wait_until_alive(name)
    stepfunctions.stop_execution(executionArn=arn, cause="the smoke test will redrive it")
    if requests.wait_for_end(arn, "ABORTED", "SUCCEEDED")["status"] == "SUCCEEDED":
        raise NotShown("the job ended before the execution could be aborted")
    requests.executions.append(requests.arn(again))
    stepfunctions.redrive_execution(executionArn=arn)
    execution = requests.wait_for_end(arn, "FAILED")
    requests.expect(again)
    _check_released_after_the_run(requests, arn)
    starts = sum(event["type"] == "TaskSubmitted" for event in requests.history(arn))
    ended = requests.wait_for_end(requests.arn(again), "SUCCEEDED")
    return {"error": execution["error"], "starts": starts, "again": ended["status"]}


@FACTS.row(
    "A Glue run continues after the task's computed timeout: the workflow stops it, and only then releases the slot.",
    source="assumed: the Step Functions guide, Discover service integration patterns, does not state it",
    expected=[],
    depends="S1b",
)
def timeout(requests: Requests) -> list[str]:
    """The stack's definition runs in a separate state machine, because the stack's timeout is hours."""
    process = requests.process()
    name = execution_name(process, "only", 1)
    definition, machines = requests.stack.machine["definition"], Machines(requests.aws)
    limit = {"TimeoutSeconds": f"{{% {requests.timings.task_timeout} * 1 %}}"}
    states = definition["States"] | {"RunGlueJob": definition["States"]["RunGlueJob"] | limit}
    machine = machines.create_defined(definition | {"States": states}, requests.stack.machine["roleArn"])
    if not requests.slots.adopt(process, name, time.time(), requests.job):
        raise Failed(f"the item of process {process} is missing from {requests.table}")
    arn = machines.start(machine, requests.body(process, "only", requests.timings.long), name)
    requests.executions.append(arn)
    execution = requests.wait_for_end(arn, "FAILED")
    if not execution["cause"].startswith("States.Timeout"):
        raise Failed(f"{name} ended with {error_of(execution)}; expected States.Timeout")
    _check_released_after_the_run(requests, arn)
    if "StopGlueRun" not in requests.times(arn):
        raise NotShown("the run had ended before the workflow checked it: AWS stopped it, or it ended by itself")
    return [*requests.item(process).holders]


def _published(requests: Requests, name: str, state: str) -> float:
    """Seconds from the end of an execution until its request's end is published."""
    ended: float = requests.execution(requests.arn(name))["stopDate"].timestamp()

    def published() -> bool:
        row = requests.row(name)
        return bool(row and row.state == state and row.open is None)

    requests.aws.wait(published, f"the end {state} of {name} to be published")
    return round(time.time() - ended - requests.timings.poll, 1)


def _check_released_after_the_run(requests: Requests, arn: str) -> None:
    name = arn.rsplit(":", 1)[-1]
    run = requests.glue_run(name)
    if run is None or run["JobRunState"] in ALIVE:
        raise Failed(f"the slot of {name} was released while its Glue run is {run and run['JobRunState']}")
    released = requests.times(arn).get("ReleaseSlot")
    ended = (run.get("CompletedOn") or run["LastModifiedOn"]).timestamp()
    if released is None or released < ended:
        raise Failed(f"the slot of {name} was released at {released}, before its Glue run ended at {ended}")


def _called(requests: Requests, linger: float) -> tuple[str, str]:
    """A state machine that sends a request and waits for the answer: its execution's ARN, and that of the request."""
    machines, process = Machines(requests.aws, "caller"), requests.process()
    body = "{% $merge([$states.input, {'task_token': $states.context.Task.Token}]) %}"
    once = {"MessageGroupId": "smoke", "MessageDeduplicationId": "{% $states.context.Execution.Id %}"}
    arguments = {"QueueUrl": requests.stack.outputs["RequestQueueUrl"], "MessageBody": body, **once}
    ask = task("sqs:sendMessage.waitForTaskToken", arguments, TimeoutSeconds=1800)
    caller = machines.start(machines.create({"Ask": ask}), requests.body(process, "asked", linger))
    (row,) = requests.aws.wait(lambda: requests.rows.rows(process).rows, "the caller's request")
    return caller, requests.arn(requests.expect(row.execution))


@FACTS.row(
    f"A caller has its answer within {HAND_OFF:.0f} s of the end of its workflow, with the Glue run.",
    source=ASSUMED,
    expected=lambda seen: seen["late"] <= HAND_OFF and seen["answer"]["JobRunState"] == "SUCCEEDED",
    unlike={"late": 58.1, "answer": {"JobRunState": "SUCCEEDED"}},
    depends="the status event of SUCCEEDED reaches the function of endings, whose role may answer. Otherwise the "
    "janitor answers within a minute: check WorkflowClosedRule, EndingQueue and EndingRole",
)
def answer(requests: Requests) -> dict[str, Any]:
    caller, called = _called(requests, 0)
    answered = requests.wait_for_end(caller, "SUCCEEDED")
    late = (answered["stopDate"] - requests.execution(called)["stopDate"]).total_seconds()
    return {"late": round(late, 2), "answer": json.loads(answered["output"])}


@FACTS.row(
    "The caller of an aborted workflow receives a failure after its Glue run was stopped and its slot was freed.",
    source=ASSUMED,
    expected={"error": "ABORTED", "run": "STOPPED", "holders": []},
    depends="S1b and S4: the function of endings, or the janitor after it, stops the run, records the end and answers. "
    "Otherwise the caller waits until its TimeoutSeconds",
)
def answer_of_an_abort(requests: Requests) -> dict[str, Any]:
    caller, called = _called(requests, requests.timings.long)
    name = called.rsplit(":", 1)[-1]
    run = requests.wait_until_alive(name)
    requests.aws.client("stepfunctions").stop_execution(executionArn=called, cause="the smoke test")
    answered = requests.wait_for_end(caller, "FAILED")
    run = requests.glue_run(name) or run
    holders = [*requests.item(process_of_execution(name)).holders]
    return {"error": answered["error"], "run": run["JobRunState"], "holders": holders}


@FACTS.row(
    f"A schedule's message arrives in the {PRECISION} s after its time, and not before.",
    source="documented: Scheduler guide, Schedule types in EventBridge Scheduler",
    expected=lambda late: 0 <= late <= PRECISION + WAY,
    unlike=-3,
    depends="retries that are due after more than 15 minutes",
)
def schedule_is_delivered(requests: Requests) -> float:
    """The message is not valid work, so the worker dead-letters it without an attempt. It shows delivery, no retry."""
    aws, at = requests.aws, int(time.time() + requests.timings.due)
    mark = aws.name("due")
    created = schedule(aws, mark, datetime.fromtimestamp(at, UTC), "ENABLED")
    if created != "accepted":
        raise Failed(f"the schedule was refused: {created}")
    url = requests.stack.outputs["WorkDeadLetterQueueUrl"]
    aws.undo.append((f"messages with {mark} in {url}", lambda: _collect(requests, url, mark)))
    longest = requests.timings.due + PRECISION + requests.timings.start
    aws.wait(lambda: _collect(requests, url, mark), "the schedule's message", longest)
    return round(time.time() - at, 1)


def _collect(requests: Requests, url: str, mark: str) -> int:
    """Delete the messages with this mark from a shared queue, and make the others visible again; their number."""
    sqs, others, found = requests.aws.client("sqs"), list[str](), 0
    try:
        for _ in range(BATCHES):
            received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=RETURN)
            for message in received.get("Messages", []):
                if mark not in message["Body"]:
                    others.append(message["ReceiptHandle"])
                    continue
                found += 1
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    finally:
        for handle in others:
            sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
    return found


@FACTS.row(
    "With KmsKeyArn, that key encrypts the workflow's executions and a schedule.",
    source="documented: docs/encryption.md lists the pages",
    expected=lambda keys: keys["workflow"] == keys["schedule"] == keys["stack"],
    unlike={"stack": "arn:aws:kms:key/1", "workflow": "", "schedule": "arn:aws:kms:key/1"},
    on=(REAL,),
    depends="docs/encryption.md. The other rows of this stack show that the roles and the log delivery may use the key",
)
def your_key(requests: Requests) -> dict[str, str]:
    if not (key := requests.stack.outputs.get("KmsKeyArn", "")):
        raise NotShown("this stack has no key of yours; deploy one with KmsKeyArn to show it")
    aws, name = requests.aws, requests.aws.name("own-key")
    created = schedule(aws, name, datetime(2100, 1, 1, tzinfo=UTC))
    if created != "accepted":
        raise Failed(f"the schedule was refused: {created}")
    group = requests.stack.environment("WorkerFunctionName")["RETRY_SCHEDULE_GROUP"]
    described = aws.client("scheduler").get_schedule(Name=name, GroupName=group)
    workflow = requests.stack.machine["encryptionConfiguration"]
    return {"stack": key, "workflow": workflow.get("kmsKeyId", ""), "schedule": described.get("KmsKeyArn", "")}
