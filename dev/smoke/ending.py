"""The end of a check, however it went: no execution, run, item or message of it is left, or somebody is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from dev.smoke.bench import ALIVE, Bench
from slotkeeper.slots.queues import RequestQueue

CLOSED = ("SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED", "NONE")


def clean_up(bench: Bench) -> list[str]:
    """Ends all that the check began, and removes it. Returns what is left behind, a line each.

    Goes on where a call fails, and is not interrupted: it is bounded by `pace.finish`.
    """
    left: list[str] = []
    bench.say("cleaning up")
    with_marker = [arn.rsplit(":", 1)[-1] for arn in bench.executions]
    stopped: list[str] = []
    _attempt(left, "executions", lambda: _end_executions(bench, stopped))
    _attempt(left, "Glue runs", lambda: _end_runs(bench, with_marker))
    something_lives = bool(left)
    for name, remove in reversed(bench.undo):
        _attempt(left, name, remove)
    for process in bench.processes:
        if something_lives:
            left.append(f"process {process}: kept for the janitor; afterwards, slotkeeper process remove {process}")
        else:
            _attempt(left, f"process {process} in {bench.table}", partial(_remove, bench, process))
    if not something_lives:
        _attempt(left, "messages that no workflow took yet", lambda: _wait_for_strays(bench))
    _attempt(left, "requests of executions that were stopped", lambda: _wait_for_kept(bench, stopped))
    for output in ("FailedRequestQueueUrl", "RequestDeadLetterQueueUrl", "WorkDeadLetterQueueUrl"):
        if url := bench.stack.outputs.get(output):
            _attempt(left, f"messages in {output}", partial(bench.letters.collect, url))
    return left


def remove_objects(bench: Bench) -> list[str]:
    """Removes the run's own objects, every version of them. Returns what is left behind."""
    left: list[str] = []
    s3, bucket = bench.stack.client("s3"), bench.stack.outputs["DataBucketName"]

    def remove() -> None:
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=f"dev/smoke/{bench.run}/"):
            for kind in ("Versions", "DeleteMarkers"):
                for each in page.get(kind, []):
                    s3.delete_object(Bucket=bucket, Key=each["Key"], VersionId=each["VersionId"])

    _attempt(left, f"objects under dev/smoke/{bench.run}/ in {bucket}", remove)
    return left


def _attempt(left: list[str], what: str, remove: Callable[[], object]) -> None:
    try:
        remove()
    except (ClientError, BotoCoreError, TimeoutError) as error:
        left.append(f"{what}: {error}")


def _end_executions(bench: Bench, stopped: list[str]) -> None:
    for arn in bench.executions:
        if bench.execution(arn)["status"] not in CLOSED:
            bench.stack.client("stepfunctions").stop_execution(executionArn=arn, cause="the smoke test is over")
            stopped.append(arn)
    _until(bench, lambda: all(bench.execution(arn)["status"] in CLOSED for arn in bench.executions), "to close")


def _end_runs(bench: Bench, names: list[str]) -> None:
    def alive() -> list[dict[str, Any]]:
        runs = [bench.glue_run(name) for name in names]
        return [run for run in runs if run and run["JobRunState"] in ALIVE]

    if found := alive():
        ids = [run["Id"] for run in found]
        bench.stack.client("glue").batch_stop_job_run(JobName=bench.job, JobRunIds=ids)
        _until(bench, lambda: not alive(), "to be over")


def _remove(bench: Bench, process: str) -> None:
    """Only now: all its executions are closed, and no run of theirs lives, so nobody holds a slot of it any more."""
    key = {"process_name": {"S": process}}
    answer = bench.stack.client("dynamodb").delete_item(TableName=bench.table, Key=key, ReturnValues="ALL_OLD")
    if waiting := answer.get("Attributes", {}).get("waiting"):
        # Who waited is hidden for minutes, and nobody else will wake it.
        queue = RequestQueue(bench.stack.client("sqs"), bench.stack.outputs["RequestQueueUrl"])
        queue.make_visible(waiting["M"]["receipt_handle"]["S"])


def _wait_for_strays(bench: Bench) -> None:
    """A request that was not started goes to the dead-letter queue, since its process is gone. We take it there."""
    strays = sum(bench.execution(bench.arn(name))["status"] == "NONE" for name in bench.sent)
    url = bench.stack.outputs["RequestDeadLetterQueueUrl"]

    def ours() -> int:
        return sum(f'"{process}"' in each.body for process in bench.processes for each in bench.letters.collect(url))

    _until(bench, lambda: ours() >= strays, "to come to RequestDeadLetterQueue")


def _wait_for_kept(bench: Bench, stopped: list[str]) -> None:
    """The janitor keeps the request of every execution of the workflow that was aborted: from there we take it."""
    workflow = bench.arn("")
    names = {arn.removeprefix(workflow) for arn in stopped if arn.startswith(workflow)}
    _until(bench, lambda: all(bench.kept(name) for name in names), "to come to FailedRequestQueue")


def _until(bench: Bench, condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + bench.pace.finish
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {bench.pace.finish:.0f} s for them {what}")
        time.sleep(bench.pace.look)
