"""cloudformation_properties: a resource has the template's properties; a custom resource answers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dev.emulator.aws import EmbeddedAws
from tests.engine.conftest import ROLE, lines, queue_arn
from tests.support.waiting import wait_until

SOURCE = """
import json, os, urllib.request
def handler(event, context):
    answer = {key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")}
    answer |= {"Status": "SUCCESS", "PhysicalResourceId": "one", "Data": {"Text": event["ResourceProperties"]["Word"]}}
    body = json.dumps(answer).encode()
    urllib.request.urlopen(urllib.request.Request(event["ResponseURL"], body, method="PUT"))
"""
TEMPLATE: dict[str, Any] = {
    "Parameters": {"Runs": {"Type": "Number", "Default": 7}},
    "Resources": {
        "Table": {
            "Type": "AWS::DynamoDB::Table",
            "Properties": {
                "BillingMode": "PAY_PER_REQUEST",
                "KeySchema": [{"AttributeName": "name", "KeyType": "HASH"}],
                "AttributeDefinitions": [{"AttributeName": "name", "AttributeType": "S"}],
                "TimeToLiveSpecification": {"AttributeName": "expires", "Enabled": True},
                "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
            },
        },
        "Function": {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "Runtime": "python3.13",
                "Handler": "index.handler",
                "Role": ROLE,
                "Code": {"ZipFile": SOURCE},
                "ReservedConcurrentExecutions": 3,
                "RecursiveLoop": "Allow",
            },
        },
        "Job": {
            "Type": "AWS::Glue::Job",
            "Properties": {
                "Role": ROLE,
                "Command": {"Name": "pythonshell", "ScriptLocation": "s3://scripts/none.py"},
                "ExecutionProperty": {"MaxConcurrentRuns": {"Ref": "Runs"}},
            },
        },
        "Custom": {
            "Type": "Custom::Word",
            "Properties": {"ServiceToken": {"Fn::GetAtt": ["Function", "Arn"]}, "Word": "hello"},
        },
    },
    "Outputs": {
        "Table": {"Value": {"Ref": "Table"}},
        "Function": {"Value": {"Ref": "Function"}},
        "Job": {"Value": {"Ref": "Job"}},
        "Text": {"Value": {"Fn::GetAtt": ["Custom", "Text"]}},
    },
}
MAPPING: dict[str, Any] = {
    "Parameters": {name: {"Type": "String"} for name in ("Queue", "Function")}
    | {"AtOnce": {"Type": "Number", "Default": 2}},
    "Resources": {
        "Mapping": {
            "Type": "AWS::Lambda::EventSourceMapping",
            "Properties": {
                "FunctionName": {"Ref": "Function"},
                "EventSourceArn": {"Ref": "Queue"},
                "BatchSize": 1,
                "ScalingConfig": {"MaximumConcurrency": {"Ref": "AtOnce"}},
            },
        }
    },
}
# Notes how many are at it, itself among them; the first waits for another one.
SIDE_BY_SIDE = """
import os, pathlib, time
folder = pathlib.Path(os.environ["FOLDER"])
def handler(event, context):
    mine = folder / ("at-it-" + context.aws_request_id)
    mine.touch()
    while not (folder / "met").exists() and len(list(folder.glob("at-it-*"))) < 2:
        time.sleep(0.02)
    (folder / "met").touch()
    with open(folder / "notes", "a") as notes:
        notes.write(str(len(list(folder.glob("at-it-*")))) + "\\n")
    time.sleep(0.3)
    mine.unlink()
"""


def created(aws: EmbeddedAws, name: str, template: dict[str, Any], **parameters: str) -> dict[str, str]:
    """The outputs of a stack, once it is there."""
    stacks = aws.client("cloudformation")
    given = [{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()]
    stacks.create_stack(StackName=name, TemplateBody=json.dumps(template), Parameters=given)

    def settled() -> dict[str, Any] | None:
        stack: dict[str, Any] = stacks.describe_stacks(StackName=name)["Stacks"][0]
        return None if stack["StackStatus"].endswith("IN_PROGRESS") else stack

    stack = wait_until(settled, "the stack")
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}


def test_an_event_source_has_the_maximum_concurrency_of_a_parameter(
    aws: EmbeddedAws, function: Callable[..., str], unique: Callable[[str], str], tmp_path: Path
) -> None:
    sqs = aws.client("sqs")
    url = sqs.create_queue(QueueName=unique("queue"))["QueueUrl"]
    name = function(SIDE_BY_SIDE, Timeout=600, Environment={"Variables": {"FOLDER": str(tmp_path)}})
    for number in range(6):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    created(aws, "mapping", MAPPING, Queue=queue_arn(aws, url), Function=name)
    notes = tmp_path / "notes"
    wait_until(lambda: len(lines(notes)) == 6, "six messages")
    assert max(int(line) for line in lines(notes)) == 2


def test_a_stack_has_the_properties_of_its_template(aws: EmbeddedAws) -> None:
    outputs = created(aws, "properties", TEMPLATE)
    assert outputs["Text"] == "hello"
    ttl = aws.client("dynamodb").describe_time_to_live(TableName=outputs["Table"])["TimeToLiveDescription"]
    assert ttl == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires"}
    backups = aws.client("dynamodb").describe_continuous_backups(TableName=outputs["Table"])
    recovery = backups["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"]
    assert recovery["PointInTimeRecoveryStatus"] == "ENABLED"
    functions = aws.client("lambda")
    concurrency = functions.get_function_concurrency(FunctionName=outputs["Function"])
    assert concurrency["ReservedConcurrentExecutions"] == 3
    recursion = functions.get_function_recursion_config(FunctionName=outputs["Function"])
    assert recursion["RecursiveLoop"] == "Allow"
    job = aws.client("glue").get_job(JobName=outputs["Job"])["Job"]
    assert job["ExecutionProperty"] == {"MaxConcurrentRuns": 7}
