"""cloudformation_properties: what the template says is what the resource has; and a custom resource answers."""

import json
from typing import Any

from local.aws import EmbeddedAws
from tests.engine.conftest import ROLE
from tests.support.waiting import wait_until

SOURCE = """
import json, os, urllib.request
def handler(event, context):
    answer = {key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")}
    answer |= {"Status": "SUCCESS", "PhysicalResourceId": "one", "Data": {"Said": event["ResourceProperties"]["Word"]}}
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
        "Said": {"Value": {"Fn::GetAtt": ["Custom", "Said"]}},
    },
}


def test_a_stack_has_the_properties_of_its_template(aws: EmbeddedAws) -> None:
    stacks = aws.client("cloudformation")
    stacks.create_stack(StackName="properties", TemplateBody=json.dumps(TEMPLATE))

    def settled() -> dict[str, Any] | None:
        stack: dict[str, Any] = stacks.describe_stacks(StackName="properties")["Stacks"][0]
        return None if stack["StackStatus"].endswith("IN_PROGRESS") else stack

    stack = wait_until(settled, "the stack")
    assert stack is not None
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    assert outputs["Said"] == "hello"
    ttl = aws.client("dynamodb").describe_time_to_live(TableName=outputs["Table"])["TimeToLiveDescription"]
    assert ttl == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires"}
    functions = aws.client("lambda")
    concurrency = functions.get_function_concurrency(FunctionName=outputs["Function"])
    assert concurrency["ReservedConcurrentExecutions"] == 3
    recursion = functions.get_function_recursion_config(FunctionName=outputs["Function"])
    assert recursion["RecursiveLoop"] == "Allow"
    job = aws.client("glue").get_job(JobName=outputs["Job"])["Job"]
    assert job["ExecutionProperty"] == {"MaxConcurrentRuns": 7}
