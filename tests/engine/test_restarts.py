"""An engine that `make soak` ends during its work continues with its state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dev.emulator.aws import EmbeddedAws
from tests.support.tables import create_table
from tests.support.waiting import wait_until

RUN = {"Type": "Task", "Resource": "arn:aws:states:::glue:startJobRun.sync", "Arguments": {"JobName": "job"}}
MACHINE = {"StartAt": "Run", "QueryLanguage": "JSONata", "States": {"Run": RUN | {"End": True}}}


@pytest.mark.parametrize("hard", [True, False])
def test_acknowledged_data_survive_a_restart_and_the_glue_run_of_a_failed_execution(tmp_path: Path, hard: bool) -> None:
    with EmbeddedAws.start(tmp_path, lasting=True) as aws:
        s3, glue, dynamodb, sqs = (aws.client(name) for name in ("s3", "glue", "dynamodb", "sqs"))
        s3.create_bucket(Bucket="scripts")
        s3.put_object(Bucket="scripts", Key="job.py", Body=b"import time\ntime.sleep(3600)\n")
        command = {"Name": "pythonshell", "ScriptLocation": "s3://scripts/job.py"}
        glue.create_job(Name="job", Role="any", Command=command)
        stepfunctions, role = aws.client("stepfunctions"), "arn:aws:iam::000000000000:role/any"
        machine = stepfunctions.create_state_machine(name="machine", definition=json.dumps(MACHINE), roleArn=role)
        execution = stepfunctions.start_execution(stateMachineArn=machine["stateMachineArn"])["executionArn"]
        (run,) = wait_until(lambda: _running(glue), "the Glue run")
        create_table(dynamodb, "items", "id")
        item = {"id": {"S": "kept"}, "n": {"N": "1"}}
        dynamodb.put_item(TableName="items", Item=item)
        url = sqs.create_queue(QueueName="kept.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        for number in ("1", "2"):
            sqs.send_message(QueueUrl=url, MessageBody=number, MessageGroupId="g", MessageDeduplicationId=number)
        (head,) = sqs.receive_message(QueueUrl=url, VisibilityTimeout=600)["Messages"]

        aws.restart(hard=hard)

        assert dynamodb.get_item(TableName="items", Key={"id": {"S": "kept"}})["Item"] == item
        journal = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
        assert [(line["table"], line["item"]) for line in journal] == [("items", item)]
        assert "Messages" not in sqs.receive_message(QueueUrl=url)  # its first message is still in flight
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=head["ReceiptHandle"], VisibilityTimeout=0)
        assert sqs.receive_message(QueueUrl=url)["Messages"][0]["MessageId"] == head["MessageId"]
        failed = stepfunctions.describe_execution(executionArn=execution)
        assert (failed["status"], failed["error"]) == ("FAILED", "States.ServiceRestart")
        assert [alive["Id"] for alive in _running(glue)] == [run["Id"]]


def _running(glue: Any) -> list[dict[str, Any]]:
    return [run for run in glue.get_job_runs(JobName="job")["JobRuns"] if run["JobRunState"] == "RUNNING"]
