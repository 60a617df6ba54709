"""Checks of workflows that do not end as they should: a run that is stopped, an abort and its redrive, a time-out."""

from __future__ import annotations

import json
import time
from typing import Any

from botocore.exceptions import ClientError

from dev.smoke.bench import ALIVE, Bench, said
from dev.smoke.outcomes import Failed, NotShown
from slotkeeper.slots.names import execution_name
from slotkeeper.slots.protocol import Granted

RUN_STATE = "RunGlueJob"


def stopped(bench: Bench) -> str:
    """Somebody stops the Glue run. Does the workflow know that it is over, keep the request and free the slot?"""
    process = bench.process()
    name = bench.send(process, "only", bench.pace.long)
    run = bench.wait_until_alive(name)
    bench.stack.client("glue").batch_stop_job_run(JobName=bench.job, JobRunIds=[run["Id"]])
    found = bench.wait_for_end(bench.arn(name), "FAILED")
    _check_kept(bench, name, found, "RequestFailed")
    _check_free(bench, process)
    if "WaitForGlueRun" in bench.entered(bench.arn(name)):
        raise Failed(
            f"the workflow did not see from the error that the run is over, and looked for it instead ({said(found)}): "
            "safe, but the slot comes back minutes later"
        )
    check_log(bench, bench.arn(name))
    return "the error says that the run is STOPPED; request kept, slot free"


def redrive(bench: Bench) -> str:
    """An execution is aborted and redriven. Does it start nothing, and give its request and then its slot back?"""
    process = bench.process()
    name = bench.send(process, "only", bench.pace.hold)
    arn = bench.arn(name)
    again = execution_name(process, "only", 2)
    bench.wait_until_alive(name)
    stepfunctions = bench.stack.client("stepfunctions")
    stepfunctions.stop_execution(executionArn=arn, cause="the smoke test redrives it")
    if bench.wait_for_end(arn, "ABORTED", "SUCCEEDED")["status"] == "SUCCEEDED":
        raise NotShown("the job was done before the execution could be aborted")
    bench.expect(again)
    stepfunctions.redrive_execution(executionArn=arn)
    found = bench.wait_for_end(arn, "FAILED")
    if found["error"] != "RequestReturned":
        raise Failed(f"the redriven execution did not give its request back: {said(found)}")
    bench.sent.append(again)
    _check_released_after_the_run(bench, name)
    starts = sum(event["type"] == "TaskSubmitted" for event in bench.history(arn))
    if starts > 1:
        raise Failed(f"the redriven execution has started a Glue run: {starts} StartJobRun in its history")
    bench.wait_for_end(bench.arn(again), "SUCCEEDED")
    return "no second run, request queued again and then the slot given back; attempt 2 succeeded"


def timeout(bench: Bench) -> str:
    """The Glue task times out, and the run lives. Does AWS leave it alive, and the workflow stop it first?

    The stack's own definition in a state machine of the check's own, with a shorter time-out; the stack's is hours.
    """
    process = bench.process()
    name = execution_name(process, "only", 1)
    machine = _own_machine(bench)
    arn = f"{machine.replace(':stateMachine:', ':execution:')}:{name}"
    if not isinstance(bench.slots.reserve(process, name, time.time()), Granted):
        raise Failed(f"process {process} has one slot, and it was refused")
    bench.executions.append(arn)
    request = json.dumps(bench.request(process, "only", bench.pace.long))
    bench.wait(lambda: _start(bench, machine, name, request), "the state machine to be known", bench.pace.start)
    found = bench.wait_for_end(arn, "FAILED")
    _check_kept(bench, name, found, "RequestFailed", "States.Timeout")
    _check_released_after_the_run(bench, name)
    _check_free(bench, process)
    entered = bench.entered(arn)
    if "StopGlueRun" not in entered:
        raise NotShown("when the workflow looked, the run was over already: AWS has stopped it, or it ended by itself")
    lived = entered["StopGlueRun"] - entered["IsGlueRunKnownToBeOver"]
    return f"alive {lived:.0f} s after the time-out; the workflow stopped it, and only then gave the slot back"


def check_log(bench: Bench, arn: str) -> None:
    """Does the workflow's log name the error of a task that failed? By it GlueRefusalAlarm counts.

    The log has no execution data, and no page of AWS says whether the error is part of that. The embedded AWS writes no
    log of a state machine. Raises Failed.
    """
    if bench.stack.local:
        return
    (destination,) = bench.stack.machine["loggingConfiguration"]["destinations"]
    group = destination["cloudWatchLogsLogGroup"]["logGroupArn"].partition(":log-group:")[2].removesuffix(":*")
    pattern = f'{{ ($.execution_arn = "{arn}") && ($.type = "TaskFailed") }}'
    pages = bench.stack.client("logs").get_paginator("filter_log_events")

    def logged() -> list[dict[str, Any]]:
        found = pages.paginate(logGroupName=group, filterPattern=pattern)
        return [json.loads(event["message"]) for page in found for event in page["events"]]

    events = bench.wait(logged, "the failed task in the workflow's log", bench.pace.start)
    if not any(event.get("details", {}).get("error") for event in events):
        raise Failed(f"the log {group} has no details.error of a failed task: GlueRefusalAlarm never rings")


def _own_machine(bench: Bench) -> str:
    definition = bench.stack.machine["definition"]
    task = definition["States"][RUN_STATE] | {"TimeoutSeconds": bench.pace.task_timeout}
    states = definition["States"] | {RUN_STATE: task}
    stepfunctions = bench.stack.client("stepfunctions")
    arn = str(
        stepfunctions.create_state_machine(
            name=f"{bench.run}-{bench.check}",
            definition=json.dumps(definition | {"States": states}),
            roleArn=bench.stack.machine["roleArn"],
            type="STANDARD",
        )["stateMachineArn"]
    )
    bench.undo.append((f"state machine {arn}", lambda: stepfunctions.delete_state_machine(stateMachineArn=arn)))
    return arn


def _start(bench: Bench, machine: str, name: str, request: str) -> bool:
    """False while Step Functions does not know yet what it has just made."""
    try:
        bench.stack.client("stepfunctions").start_execution(stateMachineArn=machine, name=name, input=request)
    except ClientError as error:
        if error.response["Error"]["Code"] != "StateMachineDoesNotExist":
            raise
        return False
    return True


def _check_kept(bench: Bench, name: str, found: dict[str, Any], error: str, cause: str = "") -> None:
    if found["error"] != error:
        raise Failed(f"{name} ended with {said(found)}; it should have ended with {error}")
    (letter,) = bench.wait(lambda: bench.kept(name), "its request in FailedRequestQueue", bench.pace.start)
    if cause and letter.attributes["error"] != cause:
        raise Failed(f"its request was kept with the error {letter.attributes['error']!r}, and not {cause!r}")


def _check_free(bench: Bench, process: str) -> None:
    if holders := bench.item(process).holders:
        raise Failed(f"the workflow is over, and {', '.join(holders)} still holds a slot of {process}")


def _check_released_after_the_run(bench: Bench, name: str) -> None:
    run = bench.glue_run(name)
    if run is None:
        raise Failed(f"Glue tells of no run of {name}")
    if run["JobRunState"] in ALIVE:
        raise Failed(f"the slot of {name} was given back, and its Glue run is {run['JobRunState']}")
    arn = next(each for each in bench.executions if each.endswith(f":{name}"))
    released = bench.entered(arn).get("ReleaseSlot")
    over = run.get("CompletedOn") or run["LastModifiedOn"]
    if released is None or released < over.timestamp():
        raise Failed(f"the slot of {name} was given back at {released}, and its Glue run ended at {over.timestamp()}")
