"""The smoke test against the embedded AWS: every check holds there, and however one ends, nothing of it is left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from dev.emulator.environment import ROOT, child_environment
from dev.smoke import timings
from dev.smoke.check_catalogue import CHECKS, Check
from dev.smoke.check_context import CheckContext
from dev.smoke.check_results import Failed
from dev.smoke.check_runner import run_checks
from dev.smoke.costs import Spending
from dev.smoke.stack_under_test import embedded
from tests.e2e.deployed_stack import DeployedStack
from tests.support.waiting import NEVER, wait_until

SOMEBODYS = json.dumps({"process": "somebody-elses", "request_id": "r"})


def _command(stack: DeployedStack, folder: Path, *options: str) -> list[str]:
    outputs = stack.aws.state_dir / "outputs.json"
    return [sys.executable, "-m", "dev.smoke", "--local", "--outputs", str(outputs), "--folder", str(folder), *options]


def _environment(stack: DeployedStack) -> dict[str, str]:
    return child_environment(stack.aws.endpoint, {"PYTHONPATH": f"{ROOT}:{ROOT / 'layers' / 'slotkeeper'}"})


def _left(stack: DeployedStack) -> list[str]:
    """What there is of any smoke test in the stack."""
    items = stack.dynamodb.scan(TableName=stack.table)["Items"]
    machines = stack.stepfunctions.list_state_machines()["stateMachines"]
    objects = stack.s3.list_object_versions(Bucket=stack.outputs["DataBucketName"], Prefix="smoke/")
    schedules = stack.aws.client("scheduler").list_schedules(GroupName=stack.outputs["RetryScheduleGroupName"])
    runs = stack.glue.get_job_runs(JobName=stack.outputs["GlueJobName"])["JobRuns"]
    names = [
        *(item["process_name"]["S"] for item in items),
        *(machine["name"] for machine in machines),
        *(each["Key"] for kind in ("Versions", "DeleteMarkers") for each in objects.get(kind, [])),
        *(schedule["Name"] for schedule in schedules["Schedules"]),
        *(run["Arguments"]["--slotkeeper-execution"] for run in runs if run["JobRunState"] == "RUNNING"),
    ]
    for output in ("FailedRequestQueueUrl", "RequestDeadLetterQueueUrl", "WorkDeadLetterQueueUrl", "RequestQueueUrl"):
        response = stack.sqs.receive_message(
            QueueUrl=stack.outputs[output], MaxNumberOfMessages=10, VisibilityTimeout=0
        )
        names += [message["Body"] for message in response.get("Messages", [])]
    return [name for name in names if "smoke" in name]


def test_every_check_holds_and_leaves_nothing_and_touches_nobody_elses(stack: DeployedStack, tmp_path: Path) -> None:
    url = stack.outputs["FailedRequestQueueUrl"]
    stack.sqs.send_message(QueueUrl=url, MessageBody=SOMEBODYS)
    ran = subprocess.run(
        _command(stack, tmp_path), cwd=ROOT, env=_environment(stack), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report: dict[str, Any] = json.loads((tmp_path / "report.json").read_text())
    assert {check["name"]: check["status"] for check in report["checks"]} == {
        check.name: "not shown" if check.name == "listing" else "passed" for check in CHECKS
    }
    assert all(check["cannot_be_shown_here"] for check in report["checks"])
    assert "| redrive | passed |" in (tmp_path / "report.md").read_text()
    assert _left(stack) == []
    (message,) = wait_until(lambda: stack.sqs.receive_message(QueueUrl=url).get("Messages"), "somebody else's message")
    stack.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert message["Body"] == SOMEBODYS


def _fails_while_it_runs(context: CheckContext) -> str:
    context.wait_until_alive(context.send(context.process(), "only", 60))
    raise Failed("the test said so")


def _breaks_before_it_starts(context: CheckContext) -> str:
    process = context.process()
    context.slots.reserve(process, "smoke-somebody", 1.0)  # no room: its request waits on the queue
    context.send(process, "only", 60)
    context.wait(lambda: context.item(process).waiting_since is not None, "the request to wait", NEVER)
    raise RuntimeError("a mistake")


def _check(name: str, carry_out: Any) -> Check:
    return Check(name, "", "", "", "", carry_out, lambda _pace: Spending())


def test_a_check_that_fails_leaves_nothing(stack: DeployedStack) -> None:
    checks = [_check("fails", _fails_while_it_runs), _check("breaks", _breaks_before_it_starts)]
    under_test = embedded(stack.aws.state_dir / "outputs.json")
    _, results = run_checks(under_test, checks, timings.EMBEDDED, lambda _check, _line: None)
    assert [(result.status, result.found, result.left_behind) for result in results] == [
        ("failed", "the test said so", []),
        ("failed", "the check raised an unexpected error: RuntimeError: a mistake", []),
    ]
    assert _left(stack) == []


def test_an_interrupted_run_leaves_nothing(stack: DeployedStack, tmp_path: Path) -> None:
    """By SIGTERM, which is made what Ctrl-C is."""
    command = _command(stack, tmp_path, "--only", "stopped,timeout")
    with subprocess.Popen(command, cwd=ROOT, env=_environment(stack), stdout=subprocess.PIPE, text=True) as running:
        wait_until(lambda: len(_left(stack)) >= 3, "its processes and its machine")
        running.send_signal(signal.SIGTERM)
        output, _ = running.communicate()
    assert (running.returncode, "interrupted" in output) == (130, True), output
    assert _left(stack) == [], output
