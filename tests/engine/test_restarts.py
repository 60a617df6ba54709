"""restarts, dynamodb_journal: an engine that ends during its work continues with its state."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dev.emulator.aws import EmbeddedAws
from dev.emulator.faults import Faults
from tests.engine.conftest import ROLE
from tests.support.tables import create_table
from tests.support.waiting import wait_until

BEGAN = time.time()
SCRIPT = "import sys, time; time.sleep(float(sys.argv[sys.argv.index('--seconds') + 1]))"
MACHINE = {
    "QueryLanguage": "JSONata",
    "StartAt": "Run",
    "States": {
        "Run": {
            "Type": "Task",
            "Resource": "arn:aws:states:::glue:startJobRun.sync",
            "Arguments": {"JobName": "job", "Arguments": {"--seconds": "3600"}},
            "End": True,
        }
    },
}


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    with EmbeddedAws.start(tmp_path_factory.mktemp("lasting"), faults=True, lasting=True) as aws:
        s3, glue, dynamodb = aws.client("s3"), aws.client("glue"), aws.client("dynamodb")
        s3.create_bucket(Bucket="scripts")
        s3.put_object(Bucket="scripts", Key="job.py", Body=SCRIPT.encode())
        command = {"Name": "pythonshell", "ScriptLocation": "s3://scripts/job.py"}
        glue.create_job(Name="job", Role=ROLE, Command=command, ExecutionProperty={"MaxConcurrentRuns": 9})
        create_table(dynamodb, "items", "id")
        machine = aws.client("stepfunctions").create_state_machine(
            name="machine", definition=json.dumps(MACHINE), roleArn=ROLE
        )
        aws.outputs = {"machine": machine["stateMachineArn"]}
        yield aws


@pytest.mark.parametrize("hard", [True, False])
def test_acknowledged_data_survive_a_restart(lasting: EmbeddedAws, unique: Callable[[str], str], hard: bool) -> None:
    dynamodb, sqs = lasting.client("dynamodb"), lasting.client("sqs")
    name = unique("kept")
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    for number in ("1", "2"):
        sqs.send_message(QueueUrl=url, MessageBody=number, MessageGroupId="g", MessageDeduplicationId=number)
    (head,) = sqs.receive_message(QueueUrl=url, VisibilityTimeout=600)["Messages"]
    dynamodb.put_item(TableName="items", Item={"id": {"S": name}, "n": {"N": "1"}})

    lasting.restart(hard=hard)

    assert dynamodb.get_item(TableName="items", Key={"id": {"S": name}})["Item"]["n"] == {"N": "1"}
    assert "Messages" not in sqs.receive_message(QueueUrl=url), "the head is in flight, and its group waits for it"
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=head["ReceiptHandle"], VisibilityTimeout=0)
    (again,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert (again["Body"], again["MessageId"]) == (head["Body"], head["MessageId"])
    assert journal(lasting, name) == [{"id": {"S": name}, "n": {"N": "1"}}]


def test_after_a_restart_a_running_execution_has_failed_and_its_glue_run_continues(lasting: EmbeddedAws) -> None:
    stepfunctions, glue = lasting.client("stepfunctions"), lasting.client("glue")
    arn = stepfunctions.start_execution(stateMachineArn=lasting.outputs["machine"], name="ran", input="{}")
    (run,) = wait_until(lambda: running(glue), "the Glue run")

    lasting.restart(hard=True)

    failed = stepfunctions.describe_execution(executionArn=arn["executionArn"])
    assert (failed["status"], failed["error"]) == ("FAILED", "States.ServiceRestart")
    assert [alive["Id"] for alive in running(glue)] == [run["Id"]]
    glue.batch_stop_job_run(JobName="job", JobRunIds=[run["Id"]])
    wait_until(lambda: state(glue, run) == "STOPPED", "the stop")


def test_no_answer_is_given_after_the_instant_of_the_saved_state(lasting: EmbeddedAws) -> None:
    """Two clients count, one in a table and one in a queue. No answered call is lost."""
    dynamodb, sqs = lasting.client("dynamodb"), lasting.client("sqs")
    url = sqs.create_queue(QueueName="counted")["QueueUrl"]
    counted = sent = 0
    ending = None
    try:
        while True:
            dynamodb.update_item(
                TableName="items",
                Key={"id": {"S": "counter"}},
                UpdateExpression="ADD n :one",
                ExpressionAttributeValues={":one": {"N": "1"}},
            )
            counted += 1
            sqs.send_message(QueueUrl=url, MessageBody="x")
            sent += 1
            if sent == 20:
                ending = lasting_end(lasting)
    except Exception:
        assert ending is not None
    ending()
    kept = int(dynamodb.get_item(TableName="items", Key={"id": {"S": "counter"}})["Item"]["n"]["N"])
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])["Attributes"]
    waiting = int(attributes["ApproximateNumberOfMessages"])
    assert (counted <= kept <= counted + 1, sent <= waiting <= sent + 1, waiting <= kept) == (True, True, True)


def lasting_end(aws: EmbeddedAws) -> Callable[[], None]:
    """Begin a hard restart on a thread; return the function that waits for its end."""
    thread = threading.Thread(target=aws.restart, kwargs={"hard": True})
    thread.start()
    return thread.join


def test_an_api_call_of_any_service_can_be_refused_or_lose_its_answer(lasting: EmbeddedAws) -> None:
    faults, dynamodb = Faults(lasting.state_dir), lasting.client("dynamodb")
    put: dict[str, Any] = {"TableName": "items", "Item": {"id": {"S": "fault"}}}
    faults.add("PutItem", "refuse", error="ThrottlingException")
    with pytest.raises(ClientError, match="ThrottlingException"):
        dynamodb.put_item(**put)
    assert "Item" not in dynamodb.get_item(TableName="items", Key=put["Item"])
    faults.add("PutItem", "lose_answer")
    with pytest.raises(ClientError, match="InternalFailure"):
        dynamodb.put_item(**put)
    assert "Item" in dynamodb.get_item(TableName="items", Key=put["Item"])


def journal(aws: EmbeddedAws, item: str) -> list[Any]:
    """The states of an item of the table `items`, oldest first."""
    lines = [json.loads(line) for line in Path(aws.state_dir, "journal.jsonl").read_text().splitlines()]
    assert all(BEGAN <= line["at"] <= time.time() for line in lines)
    return [line["item"] for line in lines if (line["table"], line["item"]["id"]["S"]) == ("items", item)]


def running(glue: Any) -> list[dict[str, Any]]:
    """The live runs with a script."""
    return [run for run in glue.get_job_runs(JobName="job")["JobRuns"] if run["JobRunState"] == "RUNNING"]


def state(glue: Any, run: dict[str, Any]) -> str:
    """The state of a run."""
    run_state: str = glue.get_job_run(JobName="job", RunId=run["Id"])["JobRun"]["JobRunState"]
    return run_state
