"""`make invoke FUNCTION=starter EVENT=happy`: call a function of the stack of `make local-up` with a sample event."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
from botocore.exceptions import BotoCoreError, ClientError

from dev.emulator import cli
from dev.emulator.aws import EmbeddedAws, EngineError
from dev.emulator.chatbot_client import signing_key
from dev.emulator.deployment import STACK_NAME, digest_of_sources
from dev.emulator.environment import ROOT
from dev.emulator.local_clients import local_client
from dev.emulator.own_job import OwnJob
from dev.tools.function_folders import code_folders
from dev.tools.sign_event import SAMPLE_MOMENT, freshen
from slotkeeper.slots.processes import Processes

LOCAL_UP = [sys.executable, "-m", "dev.emulator", "up"]
# Functions that local-up deploys only with these parameters.
OPTIONAL = {
    "retry_report": "RetryReportSchedule='rate(7 days)'",
    "token_refresher": "TokenRefreshSchedule='rate(1 day)'",
}
JOBS = ("orders-job", "better-orders-job")  # of the registrar's events; they do not run
RESPONSE = "invoke/response.json"
STDERR = 2
ANSWER_SECONDS = 1200.0  # longer than any function's timeout


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("function", type=click.Choice(["", *code_folders()]), default="")
@click.argument("event", default="")
def main(function: str, event: str) -> None:
    """Call FUNCTION with EVENT: a name in events/FUNCTION/, or the path of a JSON file.

    The embedded AWS of `make local-up` is started if it does not run, and deployed to again if a source has changed.
    The answer is written to standard output, everything else to standard error. Without EVENT, list the events.

    Exit codes: 0 the function answered; 1 it raised or timed out; 2 it was not called.
    """
    if not event:
        for each in [function] if function else code_folders():
            click.echo(f"{each}: {', '.join(path.stem for path in events_of(each))}")
        click.echo("events/README.md states what each event needs, and its outcome.", err=True)
        return
    read = _read(function, event)
    try:
        aws = _running(function)
        answer, failed = invoke(aws, function, read)
    except (EngineError, BotoCoreError, ClientError) as error:
        click.echo(f"invoke: {error}", err=True)
        raise SystemExit(2) from None
    click.echo(json.dumps(answer, indent=2))
    raise SystemExit(1 if failed else 0)


def invoke(aws: EmbeddedAws, function: str, event: Any) -> tuple[Any, bool]:
    """Call the function with a sample event; print its log, and return its answer and whether it has failed."""
    resources = aws.client("cloudformation").describe_stack_resources(StackName=STACK_NAME)["StackResources"]
    names = {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in resources}
    s3, bucket = aws.client("s3"), names["DataBucket"]
    if isinstance(event, dict):
        event = _current(aws, function, names, event)
    patient = local_client("lambda", aws.endpoint, read_timeout=ANSWER_SECONDS)
    called = patient.invoke(FunctionName=names[logical_id(function)], Payload=json.dumps(event), LogType="Tail")
    click.echo(base64.b64decode(called.get("LogResult", "")).decode(errors="replace"), err=True)
    if isinstance(event, dict) and "ResponseURL" in event:
        response = s3.get_object(Bucket=bucket, Key=RESPONSE)["Body"].read().decode()
        click.echo(f"CloudFormation received: {response}", err=True)
    return json.loads(called["Payload"].read()), "FunctionError" in called


def _running(function: str) -> EmbeddedAws:
    """The embedded AWS with the function as it is in the tree. Raises EngineError."""
    try:
        aws = EmbeddedAws.attach(cli.STATE_DIR)
        is_current = json.loads((aws.state_dir / "outputs.json").read_text()).get("sources") == digest_of_sources()
    except (EngineError, FileNotFoundError):
        is_current = False
    if not is_current:
        _local_up()
    aws = EmbeddedAws.attach(cli.STATE_DIR)
    deployed = aws.client("lambda").list_functions()["Functions"]
    if not any(logical_id(function) in each["FunctionName"] for each in deployed):
        _local_up(f"--parameters={OPTIONAL.get(function, '')}")
    return aws


def _local_up(*options: str) -> None:
    if subprocess.run([*LOCAL_UP, *options], cwd=ROOT, stdout=STDERR, check=False).returncode:
        raise EngineError("make local-up failed. No function was called.")


def _current(aws: EmbeddedAws, function: str, names: dict[str, str], event: dict[str, Any]) -> dict[str, Any]:
    """The event with the stack's names, current times and signature. Creates the process and the jobs that it names."""
    if function == "starter":
        Processes(aws.client("dynamodb"), names["SlotTable"]).create("full", 0, JOBS[0])
    if function == "process_registrar":
        for job in JOBS:
            OwnJob(job, ROOT / "jobs", {}).create(aws)
    for record in event.get("Records", []):
        *start, name = record["eventSourceARN"].split(":")
        url = names[name.removeprefix("slotkeeper-").removesuffix(".fifo")]
        record["eventSourceARN"] = ":".join([*start, url.rpartition("/")[2]])
        for at in ("SentTimestamp", "ApproximateFirstReceiveTimestamp"):  # those of the samples are in 2100
            record["attributes"][at] = str(int(min(int(record["attributes"][at]), time.time() * 1000)))
        if due := record["messageAttributes"].get("not_before"):
            due["stringValue"] = str(int(due["stringValue"]) - SAMPLE_MOMENT + int(time.time()))
    if "ResponseURL" in event:
        target = {"Bucket": names["DataBucket"], "Key": RESPONSE}
        event["ResponseURL"] = aws.client("s3").generate_presigned_url("put_object", Params=target)
    return freshen(event, signing_key(aws), time.time()) if "headers" in event else event


def logical_id(function: str) -> str:
    """The logical id of a function: `token_refresher` -> TokenRefresherFunction."""
    return "".join(word.capitalize() for word in function.split("_")) + "Function"


def events_of(function: str) -> list[Path]:
    """The sample events of a function: in events/ and in its own folder."""
    folders = (ROOT / "events" / function, ROOT / "functions" / function / "events")
    return [path for folder in folders for path in sorted(folder.glob("*.json"))]


def _read(function: str, event: str) -> Any:
    names = {path.stem: path for path in events_of(function)}
    path = names.get(event, Path(event))
    if not path.is_file():
        raise click.UsageError(f"{function} has no event {event!r}, nor is it a file. It has {', '.join(names)}")
    click.echo(os.path.relpath(path), err=True)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise click.UsageError(f"{event} is not JSON: {error}") from None


if __name__ == "__main__":
    main(prog_name="python -m dev.tools.invoke")
