"""From a recorded call to the permissions that IAM asks for (Service Authorization Reference, a service's "Actions").

Most operations need the action of their own name on the one resource that their parameters name. What is otherwise
stands here, one line each.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.least_privilege.policies import EVERYTHING, Need
from tests.least_privilege.recording import Call
from tests.least_privilege.resolved_template import ACCOUNT, PARTITION, REGION, Stack

PREFIXES = {"stepfunctions": "states", "sfn": "states"}  # botocore's service -> IAM's, where they differ
# botocore's service and operation -> the action, where it is not the operation's own name.
ACTIONS = {
    ("lambda", "Invoke"): "lambda:InvokeFunction",
    ("s3", "HeadObject"): "s3:GetObject",
    ("s3", "ListObjectsV2"): "s3:ListBucket",
    ("s3", "DeleteObjects"): "s3:DeleteObject",
    ("sqs", "SendMessageBatch"): "sqs:SendMessage",
    ("sqs", "DeleteMessageBatch"): "sqs:DeleteMessage",
    ("sqs", "ChangeMessageVisibilityBatch"): "sqs:ChangeMessageVisibility",
}
# Actions that know no resources, so that a policy can only say "*"; with the page that says so.
WITHOUT_RESOURCE = {
    "xray:PutTraceSegments": "Actions, resources, and condition keys for AWS X-Ray",
    "xray:PutTelemetryRecords": "Actions, resources, and condition keys for AWS X-Ray",
    "xray:GetSamplingRules": "AWS X-Ray and Step Functions",
    "xray:GetSamplingTargets": "AWS X-Ray and Step Functions",
    "cloudwatch:PutMetricData": "Actions, resources, and condition keys for Amazon CloudWatch",
    "logs:CreateLogDelivery": "Using CloudWatch Logs to log execution history in Step Functions",
    "logs:GetLogDelivery": "Using CloudWatch Logs to log execution history in Step Functions",
    "logs:UpdateLogDelivery": "Using CloudWatch Logs to log execution history in Step Functions",
    "logs:DeleteLogDelivery": "Using CloudWatch Logs to log execution history in Step Functions",
    "logs:ListLogDeliveries": "Using CloudWatch Logs to log execution history in Step Functions",
    "logs:PutResourcePolicy": "Using CloudWatch Logs to log execution history in Step Functions",
    "logs:DescribeResourcePolicies": "Using CloudWatch Logs to log execution history in Step Functions",
    "logs:DescribeLogGroups": "Using CloudWatch Logs to log execution history in Step Functions",
    # Lambda makes the interfaces by itself, under ids that nobody knows before; the last two of the six it wants so.
    "ec2:CreateNetworkInterface": "Giving Lambda functions access to resources in an Amazon VPC",
    "ec2:DescribeNetworkInterfaces": "Giving Lambda functions access to resources in an Amazon VPC",
    "ec2:DescribeSubnets": "Giving Lambda functions access to resources in an Amazon VPC",
    "ec2:DeleteNetworkInterface": "Giving Lambda functions access to resources in an Amazon VPC",
    "ec2:AssignPrivateIpAddresses": "Giving Lambda functions access to resources in an Amazon VPC",
    "ec2:UnassignPrivateIpAddresses": "Giving Lambda functions access to resources in an Amazon VPC",
}


def needs(call: Call, stack: Stack) -> Iterator[Need]:
    """What a call asks for, and what the services behind it ask of the caller: the role passed, the key used."""
    action = ACTIONS.get((call.service, call.operation), f"{PREFIXES.get(call.service, call.service)}:{call.operation}")
    context = {"cloudwatch:namespace": call.parameters.get("Namespace", "")} if call.service == "cloudwatch" else {}
    for resource in resources(call):
        yield Need(action, resource, str(call), context)
        yield from under_the_key(action, resource, stack, str(call))
    if action == "scheduler:CreateSchedule":
        passed = {"iam:PassedToService": "scheduler.amazonaws.com"}
        yield Need("iam:PassRole", call.parameters["Target"]["RoleArn"], str(call), passed)


def resources(call: Call) -> Iterator[str]:  # noqa: PLR0912 - a service, a case
    """The ARNs of what a call is about."""
    parameters = call.parameters
    match call.service:
        case "cloudwatch":
            yield EVERYTHING
        case "dynamodb" if "RequestItems" in parameters:
            yield from (arn("dynamodb", f"table/{table}") for table in parameters["RequestItems"])
        case "dynamodb":
            yield arn("dynamodb", f"table/{parameters['TableName']}")
        case "events":
            yield from (event_bus(entry.get("EventBusName", "default")) for entry in parameters["Entries"])
        case "glue":
            yield arn("glue", f"job/{parameters['JobName']}")
        case "lambda":
            yield arn("lambda", f"function:{parameters['FunctionName']}")
        case "s3" if "Delete" in parameters:
            yield from (
                f"arn:{PARTITION}:s3:::{parameters['Bucket']}/{each['Key']}" for each in parameters["Delete"]["Objects"]
            )
        case "s3":
            yield f"arn:{PARTITION}:s3:::{parameters['Bucket']}" + (
                f"/{parameters['Key']}" if "Key" in parameters else ""
            )
        case "scheduler":
            yield arn("scheduler", f"schedule/{parameters.get('GroupName', 'default')}/{parameters['Name']}")
        case "secretsmanager":
            yield parameters["SecretId"]
        case "sns":
            yield parameters["TopicArn"]
        case "sqs":
            yield arn("sqs", parameters["QueueUrl"].rpartition("/")[2])
        case "ssm":
            yield arn("ssm", "parameter/" + parameters["Name"].removeprefix("/"))
        case "stepfunctions":
            yield parameters.get("executionArn") or parameters["stateMachineArn"]
        case _:
            raise NotImplementedError(f"{call.service}: tests/least_privilege/call_resources.py lacks its resources")


def arn(service: str, rest: str) -> str:
    return f"arn:{PARTITION}:{service}:{REGION}:{ACCOUNT}:{rest}"


def event_bus(name: str) -> str:
    return name if name.startswith("arn:") else arn("events", f"event-bus/{name}")


READ = ("kms:Decrypt",)
WRITE = ("kms:Decrypt", "kms:GenerateDataKey")
# With a key of the user's own: what the caller of an action needs of it. The pages: SQS guide, "Key management"; SNS
# guide, "Key management"; DynamoDB guide, "DynamoDB encryption at rest usage notes" (the table's key is there already,
# and is decrypted for whoever comes); S3 guide, "Protecting data with server-side encryption using KMS keys"; Secrets
# Manager guide, "Secret encryption and decryption". What is not here uses no key.
KEYED = {
    "sqs:SendMessage": WRITE,
    "sqs:ReceiveMessage": READ,
    "sns:Publish": WRITE,
    "dynamodb:BatchGetItem": READ,
    "dynamodb:GetItem": READ,
    "dynamodb:PutItem": READ,
    "dynamodb:Scan": READ,
    "dynamodb:UpdateItem": READ,
    "s3:GetObject": READ,
    "s3:PutObject": WRITE,
    "secretsmanager:GetSecretValue": READ,
}


def under_the_key(action: str, resource: str, stack: Stack, by: str) -> Iterator[Need]:
    """What of the user's own key an action needs of whoever asks for it, if the resource is under it."""
    if resource != EVERYTHING and stack.is_under_the_key(resource):
        for used in KEYED.get(action, ()):
            yield Need(used, stack.parameters["KmsKeyArn"], by)
