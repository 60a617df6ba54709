"""Checks of workflows that do not succeed: a stopped Glue run, an abort with a redrive, a timeout."""

from __future__ import annotations

import json
import time
from typing import Any

from dev.smoke import own_resources as own
from dev.smoke.check_context import ALIVE, CheckContext, error_of
from dev.smoke.check_results import Failed, NotShown
from slotkeeper.slots.protocol import Candidate, Granted
from slotkeeper.slots.request import execution_name

RUN_STATE = "RunGlueJob"


def stopped(context: CheckContext) -> str:
    """Stop the Glue run: the workflow should learn its state from the error, keep the request and free the slot."""
    process = context.process()
    name = context.send(process, "only", context.timings.long)
    run = context.wait_until_alive(name)
    context.stack.client("glue").batch_stop_job_run(JobName=context.job, JobRunIds=[run["Id"]])
    execution = context.wait_for_end(context.arn(name), "FAILED")
    _check_kept(context, name, execution, "RequestFailed")
    _check_free(context, process)
    if "WaitForGlueRun" in context.entered(context.arn(name)):
        raise Failed(
            "the error did not state that the run has ended, so the workflow searched for the run "
            f"({error_of(execution)}): safe, but the slot is freed minutes later"
        )
    check_log(context, context.arn(name))
    return f"the error contains the run's state STOPPED; request kept, slot free. Its cause: {_cause(context, name)}"


def _cause(context: CheckContext, name: str) -> str:
    """The cause of the execution's failed task: its keys and their order are not documented."""
    failed = [event for event in context.history(context.arn(name)) if event["type"] == "TaskFailed"]
    return str(failed[0]["taskFailedEventDetails"].get("cause", "none"))[:1000] if failed else "none"


def redrive(context: CheckContext) -> str:
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
    if execution["error"] != "RequestReturned":
        raise Failed(f"the redriven execution did not queue its request again: {error_of(execution)}")
    context.sent.append(again)
    _check_released_after_the_run(context, name)
    starts = sum(event["type"] == "TaskSubmitted" for event in context.history(arn))
    if starts > 1:
        raise Failed(f"the redriven execution started a Glue run: its history has {starts} StartJobRun, expected 1")
    context.wait_for_end(context.arn(again), "SUCCEEDED")
    return "no second run; the request was queued again, then the slot was released; attempt 2 succeeded"


def timeout(context: CheckContext) -> str:
    """Let the Glue task time out: the run should continue, and the workflow stop it before it releases the slot.

    The check runs the stack's definition in a separate state machine, because the stack's timeout is hours.
    """
    process = context.process()
    name = execution_name(process, "only", 1)
    machine = own.machine(context, "workflow", _with_short_timeout(context))
    if not isinstance(context.slots.reserve(Candidate(process, name), time.time()), Granted):
        raise Failed(f"process {process} has one free slot, but reserving it was refused")
    arn = own.start(context, machine, name, context.request(process, "only", context.timings.long))
    execution = context.wait_for_end(arn, "FAILED")
    _check_kept(context, name, execution, "RequestFailed", "States.Timeout")
    _check_released_after_the_run(context, name)
    _check_free(context, process)
    entered = context.entered(arn)
    if "StopGlueRun" not in entered:
        raise NotShown("the run had ended before the workflow checked it: AWS stopped it, or it ended by itself")
    lived = entered["StopGlueRun"] - entered["IsGlueRunKnownToHaveEnded"]
    return f"alive {lived:.0f} s after the timeout; the workflow stopped it, and only then released the slot"


def check_log(context: CheckContext, arn: str) -> None:
    """Check that the workflow's log names the error of a failed task, which GlueRefusalAlarm counts.

    The log has no execution data, and AWS does not document whether that includes the error. The embedded AWS writes
    no log of a state machine. Raises Failed.
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


def _with_short_timeout(context: CheckContext) -> dict[str, Any]:
    """The deployed definition, whose Glue task times out early. The timeout is computed, as the deployed one is."""
    definition: dict[str, Any] = context.stack.machine["definition"]
    seconds = f"{{% {context.timings.task_timeout} * 1 %}}"
    task = definition["States"][RUN_STATE] | {"TimeoutSeconds": seconds}
    return definition | {"States": definition["States"] | {RUN_STATE: task}}


def _check_kept(context: CheckContext, name: str, execution: dict[str, Any], error: str, cause: str = "") -> None:
    if execution["error"] != error:
        raise Failed(f"{name} ended with {error_of(execution)}; expected error {error}")
    (message,) = context.wait(lambda: context.kept(name), "its request in FailedRequestQueue", context.timings.start)
    if cause and message.attributes["error"] != cause:
        raise Failed(f"its request was kept with the error {message.attributes['error']!r}, expected {cause!r}")


def _check_free(context: CheckContext, process: str) -> None:
    if holders := context.item(process).holders:
        raise Failed(f"the workflow has ended, but {', '.join(holders)} still holds a slot of {process}")


def _check_released_after_the_run(context: CheckContext, name: str) -> None:
    run = context.glue_run(name)
    if run is None:
        raise Failed(f"Glue lists no run of {name}")
    if run["JobRunState"] in ALIVE:
        raise Failed(f"the slot of {name} was released while its Glue run is {run['JobRunState']}")
    arn = next(each for each in context.executions if each.endswith(f":{name}"))
    released = context.entered(arn).get("ReleaseSlot")
    ended = run.get("CompletedOn") or run["LastModifiedOn"]
    if released is None or released < ended.timestamp():
        raise Failed(f"the slot of {name} was released at {released}, before its Glue run ended at {ended.timestamp()}")
