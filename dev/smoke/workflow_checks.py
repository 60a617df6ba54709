"""Requests sent as a producer does, with the sample job: hand-off, listing of runs, stop, redrive, timeout, answers."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

from dev.smoke import own_resources as own
from dev.smoke.check_context import ALIVE, CheckContext, error_of
from dev.smoke.facts import HAND_OFF, Fact, Failed, NotShown
from slotkeeper.slots.executions import SLOT_LOST
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.request import execution_name, process_of_execution
from slotkeeper.slots.rows import RequestRow

CHAIN, CHAIN_STEP = 20, 2  # rings of one chain, and the seconds between two; Lambda's loop detection ends one at 16
CHAIN_AFTER = 30  # seconds until the first one: all requests must be queued before


def _ring(context: CheckContext) -> str:
    """Measure how soon a waiting request starts after the release of the only slot."""
    process = context.process()
    first = context.arn(context.send(process, "first", context.timings.hold))
    context.wait(
        lambda: context.execution(first)["status"] == "RUNNING", "the first request to start", context.timings.start
    )
    second = context.arn(context.send(process, "second", 0))

    def waits() -> bool:
        if context.execution(first)["status"] != "RUNNING":
            raise NotShown("the first request ended before the second one was refused, so no request waited")
        return bool(context.rows.queue(process).rows)

    context.wait(waits, "the second request to be queued", context.timings.start)
    context.wait_for_end(first, "SUCCEEDED")
    started = context.wait_for_end(second, "SUCCEEDED")["startDate"].timestamp()
    (released,) = (
        event["timestamp"].timestamp()
        for event in context.history(first)
        if event.get("stateExitedEventDetails", {}).get("name") == "ReleaseSlot"
    )
    if started - released > HAND_OFF:
        raise Failed(f"{started - released:.1f} s from the release to the next start")
    return f"{started - released:.2f} s from the release to the next start"


def _chain(context: CheckContext) -> dict[str, Any]:
    """How late requests end that wait in a paused process, each of them by a ring that the dispatch before it sent."""
    process = context.process("-chain")
    Processes(context.stack.client("dynamodb"), context.table).pause(process)
    first = time.time() + CHAIN_AFTER
    until = [datetime.fromtimestamp(first + number * CHAIN_STEP, UTC).isoformat() for number in range(CHAIN)]
    names = [context.send(process, f"{number}", 0, start_before=at) for number, at in enumerate(until)]

    def ended() -> list[RequestRow]:
        rows = [row for name in names if (row := context.row(name)) and row.state == "TOO_LATE"]
        return rows if len(rows) == len(names) else []

    rows = context.wait(ended, "the last deadline", context.timings.start + CHAIN_AFTER + CHAIN * CHAIN_STEP)
    late = [round((row.ended or 0) - (row.start_before or 0), 1) for row in rows]
    function = context.stack.outputs["StarterFunctionName"]
    recursion = context.stack.client("lambda").get_function_recursion_config(FunctionName=function)["RecursiveLoop"]
    return {"late": late, "recursion": recursion}


def _listing(context: CheckContext) -> str:
    """Measure the time from StartJobRun's answer to the run's first appearance in GetJobRuns."""
    name = context.send(context.process(), "only", 0)
    arn = context.arn(name)
    context.wait(lambda: context.execution(arn)["status"] != "NONE", "its start", context.timings.start)
    answered = listed = 0.0

    def both() -> bool:
        nonlocal answered, listed
        listed = listed or (time.monotonic() if context.glue_run(name) else 0.0)
        submitted = answered or any(event["type"] == "TaskSubmitted" for event in context.history(arn))
        answered = answered or (time.monotonic() if submitted else 0.0)
        return bool(answered and listed)

    context.wait(both, "Glue to list its run", context.timings.start)
    late, gap = max(0.0, listed - answered), context.stack.check_gap
    if late >= gap:
        raise Failed(f"listed {late:.1f} s after the answer: two checks {gap:.0f} s apart may both miss it")
    context.wait_for_end(arn, "SUCCEEDED")
    return f"listed at most {late + context.timings.poll:.1f} s after the answer; CheckGapSeconds is {gap:.0f}"


def _stopped(context: CheckContext) -> str:
    """Stop the Glue run: the workflow should learn its state from the error, record it and free the slot."""
    process = context.process()
    name = context.send(process, "only", context.timings.long)
    run = context.wait_until_alive(name)
    context.stack.client("glue").batch_stop_job_run(JobName=context.job, JobRunIds=[run["Id"]])
    execution = context.wait_for_end(context.arn(name), "FAILED")
    published = _published(context, name, "FAILED")
    _check_free(context, process)
    if "WaitForGlueRun" in context.entered(context.arn(name)):
        raise Failed(f"the workflow searched for the run ({error_of(execution)}): the slot is freed minutes later")
    _check_log(context, context.arn(name))
    return f"the error contains the run's state STOPPED; slot free, failure published {published:.1f} s after the end"


def _check_log(context: CheckContext, arn: str) -> None:
    """Check that the workflow's log names the error of a failed task, which GlueRefusalAlarm counts.

    The log has no execution data, and AWS does not document whether that includes the error. The embedded AWS writes
    no log of a state machine.
    """
    if context.stack.local:
        return
    (destination,) = context.stack.machine["loggingConfiguration"]["destinations"]
    group = destination["cloudWatchLogsLogGroup"]["logGroupArn"].partition(":log-group:")[2].removesuffix(":*")
    pattern = f'{{ ($.execution_arn = "{arn}") && ($.type = "TaskFailed") }}'
    pages = context.stack.client("logs").get_paginator("filter_log_events")

    def logged() -> list[dict[str, Any]]:
        logged_pages = pages.paginate(logGroupName=group, filterPattern=pattern)
        return [json.loads(event["message"]) for page in logged_pages for event in page["events"]]

    events = context.wait(logged, "the failed task in the workflow's log", context.timings.start)
    if not any(event.get("details", {}).get("error") for event in events):
        raise Failed(f"the log {group} has no details.error of a failed task, so GlueRefusalAlarm cannot go off")


def _redrive(context: CheckContext) -> str:
    """Abort and redrive an execution: it should start no Glue run, queue its request again and release its slot."""
    process = context.process()
    name = context.send(process, "only", context.timings.hold)
    arn = context.arn(name)
    again = execution_name(process, "only", 2)
    context.wait_until_alive(name)
    stepfunctions = context.stack.client("stepfunctions")
    stepfunctions.stop_execution(executionArn=arn, cause="the smoke test will redrive it")
    if context.wait_for_end(arn, "ABORTED", "SUCCEEDED")["status"] == "SUCCEEDED":
        raise NotShown("the job ended before the execution could be aborted")
    context.expect(again)
    stepfunctions.redrive_execution(executionArn=arn)
    execution = context.wait_for_end(arn, "FAILED")
    if execution["error"] != SLOT_LOST:
        raise Failed(f"the redriven execution did not end as {SLOT_LOST}: {error_of(execution)}")
    context.sent.append(again)
    _check_released_after_the_run(context, name)
    starts = sum(event["type"] == "TaskSubmitted" for event in context.history(arn))
    if starts > 1:
        raise Failed(f"the redriven execution started a Glue run: its history has {starts} StartJobRun, expected 1")
    context.wait_for_end(context.arn(again), "SUCCEEDED")
    return "no second run; the slot was released after the run's end; the request was queued again, and succeeded"


def _timeout(context: CheckContext) -> str:
    """Let the Glue task time out: the run should continue, and the workflow stop it before it releases the slot.

    The check runs the stack's definition in a separate state machine, because the stack's timeout is hours. The short
    timeout is computed, as the deployed one is.
    """
    process = context.process()
    name = execution_name(process, "only", 1)
    definition = context.stack.machine["definition"]
    task = definition["States"]["RunGlueJob"] | {"TimeoutSeconds": f"{{% {context.timings.task_timeout} * 1 %}}"}
    machine = own.machine(context, "workflow", definition | {"States": definition["States"] | {"RunGlueJob": task}})
    if not context.slots.adopt(process, name, time.time(), context.job):
        raise Failed(f"the item of process {process} is missing from {context.table}")
    arn = own.start(context, machine, name, context.request(process, "only", context.timings.long))
    execution = context.wait_for_end(arn, "FAILED")
    if not execution["cause"].startswith("States.Timeout"):
        raise Failed(f"{name} ended with {error_of(execution)}; expected States.Timeout")
    _check_released_after_the_run(context, name)
    _check_free(context, process)
    entered = context.entered(arn)
    if "StopGlueRun" not in entered:
        raise NotShown("the run had ended before the workflow checked it: AWS stopped it, or it ended by itself")
    lived = entered["StopGlueRun"] - entered["IsGlueRunKnownToHaveEnded"]
    return f"alive {lived:.0f} s after the timeout; the workflow stopped it, and only then released the slot"


def _published(context: CheckContext, name: str, state: str) -> float:
    """Seconds from the end of an execution until its request's end is published. Raises Failed if it takes too long."""
    ended: float = context.execution(context.arn(name))["stopDate"].timestamp()

    def published() -> RequestRow | None:
        row = context.row(name)
        return row if row and row.state == state and row.open is None else None

    context.wait(published, f"the end {state} of {name} to be published", context.timings.start)
    late = time.time() - ended
    if late > HAND_OFF + context.timings.poll:
        raise Failed(f"the end of {name} was published {late:.1f} s after it, by the janitor and not by its event")
    return late


def _check_free(context: CheckContext, process: str) -> None:
    if holders := context.item(process).holders:
        raise Failed(f"the workflow has ended, but {', '.join(holders)} still holds a slot of {process}")


def _check_released_after_the_run(context: CheckContext, name: str) -> None:
    run = context.glue_run(name)
    if run is None or run["JobRunState"] in ALIVE:
        raise Failed(f"the slot of {name} was released while its Glue run is {run and run['JobRunState']}")
    arn = next(each for each in context.executions if each.endswith(f":{name}"))
    released = context.entered(arn).get("ReleaseSlot")
    ended = (run.get("CompletedOn") or run["LastModifiedOn"]).timestamp()
    if released is None or released < ended:
        raise Failed(f"the slot of {name} was released at {released}, before its Glue run ended at {ended}")


def _caller(context: CheckContext) -> str:
    """A state machine that sends its input as a request, and waits for the answer."""
    outputs = context.stack.outputs
    permitted = [(["sqs:SendMessage"], "sqs", outputs["RequestQueueArn"].rpartition(":")[2])]
    if "KmsKeyArn" in outputs:
        permitted.append((["kms:Decrypt", "kms:GenerateDataKey"], "kms", outputs["KmsKeyArn"].rpartition(":")[2]))
    role = own.role(context, "role", *permitted)
    body = "{% $merge([$states.input, {'task_token': $states.context.Task.Token}]) %}"
    once = {"MessageGroupId": "smoke", "MessageDeduplicationId": "{% $states.context.Execution.Id %}"}
    definition = {"QueryLanguage": "JSONata"} | own.asking(outputs["RequestQueueUrl"], body, **once)
    return own.machine(context, "caller", definition, role)


def _called(context: CheckContext, request_id: str, linger: float) -> tuple[str, str]:
    """Call with a request of the check's process; the caller's ARN and the name of the request's execution."""
    process = context.once(CheckContext.process)
    arn = own.start(context, context.once(_caller), request_id, context.request(process, request_id, linger))

    def rows() -> list[RequestRow]:
        return [row for row in context.rows.rows(process).rows if row.request_id == request_id]

    (row,) = context.wait(rows, "the caller's request", context.timings.start)
    name = row.execution
    context.expect(name)
    context.sent.append(name)
    return arn, name


def _answer(context: CheckContext) -> dict[str, Any]:
    """The answer to a caller, and how late it comes after the end of the workflow."""
    arn, name = _called(context, "succeeds", 0)
    answered = context.wait_for_end(arn, "SUCCEEDED")
    ended = context.execution(context.arn(name))["stopDate"]
    _published(context, name, "SUCCEEDED")
    late = (answered["stopDate"] - ended).total_seconds()
    return {"late": round(late, 2), "answer": json.loads(answered["output"])}


def _answer_of_an_abort(context: CheckContext) -> dict[str, Any]:
    """The answer to a caller whose request's workflow is aborted. It comes after the proof that the run has ended."""
    arn, name = _called(context, "aborted", context.timings.long)
    run = context.wait_until_alive(name)
    context.stack.client("stepfunctions").stop_execution(executionArn=context.arn(name), cause="the smoke test")
    answered = context.wait_for_end(arn, "FAILED")
    run = context.glue_run(name) or run
    return {
        "error": answered["error"],
        "run": run["JobRunState"],
        "holders": [*context.item(process_of_execution(name)).holders],
    }


RING = Fact(
    "ring",
    "How soon after a release does a queued request start?",
    f"within {HAND_OFF:.0f} s",
    "S6: Ring sends a message to DispatchQueue, the second event source of the starter, whose long poll receives it "
    "immediately (Lambda guide, Using Lambda with Amazon SQS). Otherwise only the janitor starts what waits",
    _ring,
)
CHAIN_OF_RINGS = Fact(
    "chain-of-rings",
    f"Does a chain of {CHAIN} dispatches that ring for each other continue?",
    f"yes: each deadline is met within {HAND_OFF:.0f} s, and the starter's recursive loops are allowed",
    "deadlines and rates: Lambda stops a loop through SQS after 16 invocations (Lambda guide, Use Lambda recursive "
    "loop detection). Otherwise check RecursiveLoop of the starter; the janitor's runs meet deadlines by a minute",
    _chain,
    lambda answer: max(answer["late"]) <= HAND_OFF and answer["recursion"] == "Allow",
)
LISTING = Fact(
    "listing",
    "How long after StartJobRun's answer does GetJobRuns list the run?",
    "less than CheckGapSeconds",
    "S1b: a slot is freed after two checks without a live run. AWS documents no bound: raise CheckGapSeconds",
    _listing,
    not_here="the embedded Glue lists a run when it starts it",
)
STOPPED = Fact(
    "stopped",
    "Does the error of a stopped Glue run state that it has ended, and does the workflow's log name the error?",
    f"yes: the slot is freed without a search for the run, and the failure published within {HAND_OFF:.0f} s",
    "the slot is freed in seconds, and GlueRefusalAlarm rings (Step Functions guide, Start an AWS Glue job)",
    _stopped,
)
REDRIVE = Fact(
    "redrive",
    "Does the redrive of an aborted execution begin at RunGlueJob, with a RedriveCount of 1?",
    "yes: it starts no second run, releases the slot after the run has ended, and its request is queued again",
    "F4 (Step Functions guide, Restarting state machine executions with redrive). Otherwise put a Choice state before "
    "RunGlueJob",
    _redrive,
)
TIMEOUT = Fact(
    "timeout",
    "Does a Glue run continue after the task's computed timeout?",
    "yes: the workflow stops it, and only then releases the slot",
    "S1b: AWS does not document it (Step Functions guide, Discover service integration patterns)",
    _timeout,
)
ANSWER = Fact(
    "answer",
    "How soon after the end of its workflow does a caller have its answer?",
    f"within {HAND_OFF:.0f} s, with the Glue run",
    "the status event of SUCCEEDED reaches the function of endings, whose role may answer. Otherwise the janitor "
    "answers within a minute: check WorkflowClosedRule, EndingQueue and EndingRole",
    _answer,
    lambda answer: answer["late"] <= HAND_OFF and answer["answer"]["JobRunState"] == "SUCCEEDED",
)
ANSWER_OF_AN_ABORT = Fact(
    "answer-of-an-abort",
    "Does the caller of an aborted workflow receive a failure after its Glue run has ended?",
    "yes: ABORTED; the run is stopped and the slot is free",
    "S1b and S4: the function of endings, or the janitor after it, stops the run, records the end and answers. "
    "Otherwise the caller waits until its TimeoutSeconds",
    _answer_of_an_abort,
    lambda answer: (answer["error"], answer["run"], answer["holders"]) == ("ABORTED", "STOPPED", []),
)
