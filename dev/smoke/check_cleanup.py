"""Clean-up after each check: remove its executions, runs, items and messages, and report what could not be removed."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from dev.smoke.check_context import ALIVE, CheckContext
from slotkeeper.next_step import next_step

CLOSED = ("SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED", "NONE")


def clean_up(context: CheckContext) -> list[str]:
    """End and remove everything that the check started. Return a line for each thing that is left.

    A failed call does not end the clean-up, nor does Ctrl-C. Each wait takes at most `timings.finish` seconds.
    """
    left: list[str] = []
    context.say("cleaning up")
    # Only a check with a process has started runs of the sample job; other stacks may not have that job.
    with_marker = [arn.rsplit(":", 1)[-1] for arn in context.executions] if context.processes else []
    _attempt(left, "executions", lambda: _end_executions(context))
    _attempt(left, "Glue runs", lambda: _end_runs(context, with_marker))
    something_lives = bool(left)
    for name, remove in reversed(context.undo):
        _attempt(left, name, remove)
    if not something_lives:
        _attempt(left, "requests that are not accepted", lambda: _wait_for_rows(context))
    for process in context.processes:
        if something_lives:
            left.append(f"process {process}: kept for the janitor; afterwards, {next_step('process remove', process)}")
        else:
            _attempt(left, f"process {process} in {context.table}", partial(_remove, context, process))
    for output in ("RequestDeadLetterQueueUrl", "WorkDeadLetterQueueUrl"):
        if url := context.stack.outputs.get(output):
            _attempt(left, f"messages in {output}", partial(context.messages.collect, url))
    return left


def remove_objects(context: CheckContext) -> list[str]:
    """Remove all versions of the run's objects. Return what is left."""
    left: list[str] = []
    s3, bucket = context.stack.client("s3"), context.stack.outputs["DataBucketName"]

    def remove() -> None:
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=f"smoke/{context.run}/"):
            for kind in ("Versions", "DeleteMarkers"):
                for each in page.get(kind, []):
                    s3.delete_object(Bucket=bucket, Key=each["Key"], VersionId=each["VersionId"])

    _attempt(left, f"objects under smoke/{context.run}/ in {bucket}", remove)
    return left


def _attempt(left: list[str], what: str, remove: Callable[[], object]) -> None:
    try:
        remove()
    except (ClientError, BotoCoreError, TimeoutError) as error:
        left.append(f"{what}: {error}")


def _end_executions(context: CheckContext) -> None:
    for arn in context.executions:
        if context.execution(arn)["status"] in CLOSED:
            continue
        try:
            context.stack.client("stepfunctions").stop_execution(executionArn=arn, cause="the smoke test has ended")
        except ClientError:
            if context.execution(arn)["status"] not in CLOSED:  # it may have closed after it was described
                raise
    _until(context, lambda: all(context.execution(arn)["status"] in CLOSED for arn in context.executions), "to close")


def _end_runs(context: CheckContext, names: list[str]) -> None:
    def alive() -> list[dict[str, Any]]:
        runs = [context.glue_run(name) for name in names]
        return [run for run in runs if run and run["JobRunState"] in ALIVE]

    if runs := alive():
        ids = [run["Id"] for run in runs]
        context.stack.client("glue").batch_stop_job_run(JobName=context.job, JobRunIds=ids)
        _until(context, lambda: not alive(), "to end")


def _wait_for_rows(context: CheckContext) -> None:
    """Wait until the requests that were sent are rows: a later one would be added after its process was removed."""
    _until(context, lambda: all(context.row(name) for name in context.sent), "to be accepted")


def _remove(context: CheckContext, process: str) -> None:
    """Delete the process, and its rows. All its executions have closed and their Glue runs have ended.

    The rows last: a dispatch that has read the queue before ends what it still finds, or starts nothing without a slot.
    """
    dynamodb, rows = context.stack.client("dynamodb"), context.stack.outputs["RequestTableName"]
    dynamodb.delete_item(TableName=context.table, Key={"process_name": {"S": process}})
    for row in context.rows.rows(process).rows:
        key = {"process_name": {"S": process}, "execution": {"S": row.execution}}
        dynamodb.delete_item(TableName=rows, Key=key)


def _until(context: CheckContext, condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + context.timings.finish
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {context.timings.finish:.0f} s for them {what}")
        time.sleep(context.timings.poll)
