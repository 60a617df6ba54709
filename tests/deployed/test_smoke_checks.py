"""The smoke test on the deployed stack: its rows pass and leave nothing, also after an interrupt."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from dev.emulator.environment import ROOT, child_environment
from tests.deployed.deployed_stack import DeployedStack
from tests.facts.facts import EMBEDDED
from tests.facts.smoke import FACTS, Verdict
from tests.waiting import wait_until

FOREIGN = json.dumps({"process": "another-process", "request_id": "r"})


def _command(stack: DeployedStack, folder: Path, *options: str) -> list[str]:
    outputs = stack.aws.state_dir / "outputs.json"
    return [
        sys.executable,
        "-m",
        "tests.facts",
        "--local",
        "--outputs",
        str(outputs),
        "--folder",
        str(folder),
        *options,
    ]


def _environment(stack: DeployedStack) -> dict[str, str]:
    return child_environment(stack.aws.endpoint, {"PYTHONPATH": f"{ROOT}:{ROOT / 'layers' / 'slotkeeper'}"})


def _left(stack: DeployedStack) -> list[str]:
    """The resources of any smoke test in the stack."""
    items = stack.dynamodb.scan(TableName=stack.table)["Items"]
    machines = stack.stepfunctions.list_state_machines()["stateMachines"]
    objects = stack.s3.list_object_versions(Bucket=stack.outputs["DataBucketName"], Prefix="smoke/")
    schedules = stack.aws.client("scheduler").list_schedules(GroupName=stack.outputs["RetryScheduleGroupName"])
    runs = stack.glue.get_job_runs(JobName=stack.outputs["GlueJobName"])["JobRuns"]
    queues = stack.sqs.list_queues(QueueNamePrefix="smoke-").get("QueueUrls", [])
    names = [
        *queues,
        *stack.dynamodb.list_tables()["TableNames"],
        *(topic["TopicArn"] for topic in stack.aws.client("sns").list_topics()["Topics"]),
        *(role["RoleName"] for role in stack.aws.client("iam").list_roles()["Roles"]),
        *(rule["Name"] for rule in stack.aws.client("events").list_rules()["Rules"]),
        *(job["Name"] for job in stack.glue.get_jobs()["Jobs"]),
        *(item["process_name"]["S"] for item in items),
        *(machine["name"] for machine in machines),
        *(each["Key"] for kind in ("Versions", "DeleteMarkers") for each in objects.get(kind, [])),
        *(schedule["Name"] for schedule in schedules["Schedules"]),
        *(run["Arguments"]["--slotkeeper-execution"] for run in runs if run["JobRunState"] == "RUNNING"),
    ]
    for output in ("RequestDeadLetterQueueUrl", "WorkDeadLetterQueueUrl", "RequestQueueUrl"):
        response = stack.sqs.receive_message(
            QueueUrl=stack.outputs[output], MaxNumberOfMessages=10, VisibilityTimeout=0
        )
        names += [message["Body"] for message in response.get("Messages", [])]
    return [name for name in names if "smoke" in name]


# The rows of the deployed stack, and one for each kind of what the others create.
CHOSEN = (
    "requests,glue,schedules,notifications,status_events_of_all_ends,message_of_a_workflow,transaction_over_two_tables"
)


def test_every_row_is_as_expected_leaves_nothing_and_keeps_foreign_messages(
    stack: DeployedStack, tmp_path: Path
) -> None:
    url = stack.outputs["WorkDeadLetterQueueUrl"]
    stack.sqs.purge_queue(QueueUrl=url)  # of earlier tests
    stack.sqs.send_message(QueueUrl=url, MessageBody=FOREIGN)
    command = _command(stack, tmp_path, "--only", CHOSEN)
    ran = subprocess.run(command, cwd=ROOT, env=_environment(stack), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report: dict[str, Any] = json.loads((tmp_path / "report.json").read_text())
    verdicts = {answer["name"]: answer["verdict"] for answer in report["answers"]}
    facts = [fact for fact in FACTS if {fact.name, fact.group} & {*CHOSEN.split(",")}]
    shown = {True: Verdict.AS_EXPECTED, False: Verdict.NOT_TRIED}
    assert verdicts == {fact.name: shown[EMBEDDED in fact.on] for fact in facts}
    assert _left(stack) == []
    (message,) = wait_until(lambda: stack.sqs.receive_message(QueueUrl=url).get("Messages"), "the foreign message")
    stack.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert message["Body"] == FOREIGN


def test_an_interrupted_run_leaves_nothing(stack: DeployedStack, tmp_path: Path) -> None:
    """By SIGTERM, which is handled like Ctrl-C."""
    command = _command(stack, tmp_path, "--only", "stopped,timeout")
    with subprocess.Popen(command, cwd=ROOT, env=_environment(stack), stdout=subprocess.PIPE, text=True) as running:
        wait_until(lambda: len(_left(stack)) >= 3, "its processes and its machine")
        running.send_signal(signal.SIGTERM)
        output, _ = running.communicate()
    assert (running.returncode, "interrupted" in output) == (130, True), output
    assert _left(stack) == [], output
