"""The permissions that a recorded call needs (Service Authorization Reference, "Actions" of each service).

Most operations need the action of their own name on the one resource in their parameters. The tables here list the
exceptions.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.least_privilege.policies import EVERYTHING, Need
from tests.least_privilege.recording import Call
from tests.least_privilege.resolved_template import ACCOUNT, PARTITION, REGION, Stack

PREFIXES = {"stepfunctions": "states", "sfn": "states"}  # botocore's service -> IAM's, where they differ
# botocore's service and operation -> the action, if it is not named like the operation.
ACTIONS = {
    ("lambda", "Invoke"): "lambda:InvokeFunction",
    ("s3", "HeadObject"): "s3:GetObject",
    ("s3", "ListObjectsV2"): "s3:ListBucket",
    ("s3", "DeleteObjects"): "s3:DeleteObject",
    ("sqs", "SendMessageBatch"): "sqs:SendMessage",
    ("sqs", "DeleteMessageBatch"): "sqs:DeleteMessage",
    ("sqs", "ChangeMessageVisibilityBatch"): "sqs:ChangeMessageVisibility",
}
# Actions without resource-level permissions, which a policy must grant on "*". The pages: "Actions, resources, and
# condition keys" of AWS X-Ray and of Amazon CloudWatch; "AWS X-Ray and Step Functions" (sampling); "Using CloudWatch
# Logs to log execution history in Step Functions"; "Giving Lambda functions access to resources in an Amazon VPC"
# (Lambda creates the interfaces itself, with unpredictable ids, and also requires the last two actions).
TRACES = ("xray:PutTraceSegments", "xray:PutTelemetryRecords")
SAMPLES = ("xray:GetSamplingRules", "xray:GetSamplingTargets")
DELIVERS_LOGS = (
    "logs:CreateLogDelivery",
    "logs:GetLogDelivery",
    "logs:UpdateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:DescribeResourcePolicies",
    "logs:DescribeLogGroups",
)
MAKES_INTERFACES = (
    "ec2:CreateNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
)
WITHOUT_RESOURCE = {*TRACES, *SAMPLES, "cloudwatch:PutMetricData", *DELIVERS_LOGS, *MAKES_INTERFACES}


def needs(call: Call, stack: Stack) -> Iterator[Need]:
    """The permissions for a call itself, for the role that it passes and for the key that it uses."""
    action = ACTIONS.get((call.service, call.operation), f"{PREFIXES.get(call.service, call.service)}:{call.operation}")
    context = {"cloudwatch:namespace": call.parameters.get("Namespace", "")} if call.service == "cloudwatch" else {}
    for resource in resources(call):
        yield Need(action, resource, str(call), context)
        yield from key_needs(action, resource, stack, str(call))
    if action == "scheduler:CreateSchedule":
        passed = {"iam:PassedToService": "scheduler.amazonaws.com"}
        yield Need("iam:PassRole", call.parameters["Target"]["RoleArn"], str(call), passed)


def resources(call: Call) -> Iterator[str]:  # noqa: PLR0912 - a service, a case
    """The ARNs of the resources of a call."""
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
        case "sfn" | "states":  # of the workflow
            is_of_execution = call.operation in ("DescribeExecution", "StopExecution")
            yield parameters["ExecutionArn" if is_of_execution else "StateMachineArn"]
        case "stepfunctions" if call.operation in ("SendTaskSuccess", "SendTaskFailure"):
            yield parameters["taskToken"]  # in slot_cases.py, the ARN of the caller's state machine
        case "stepfunctions":
            yield parameters.get("executionArn") or parameters["stateMachineArn"]
        case _:
            raise NotImplementedError(f"{call.service}: add its resources to tests/least_privilege/call_resources.py")


def arn(service: str, rest: str) -> str:
    return f"arn:{PARTITION}:{service}:{REGION}:{ACCOUNT}:{rest}"


def event_bus(name: str) -> str:
    return name if name.startswith("arn:") else arn("events", f"event-bus/{name}")


READ = ("kms:Decrypt",)
WRITE = ("kms:Decrypt", "kms:GenerateDataKey")
# KMS actions that the caller of an action needs for a customer managed key. The pages: SQS guide, "Key management"; SNS
# guide, "Key management"; DynamoDB guide, "DynamoDB encryption at rest usage notes" (the table has its key already, and
# each caller has it decrypted); S3 guide, "Protecting data with server-side encryption using KMS keys"; Secrets Manager
# guide, "Secret encryption and decryption". Other actions use no key.
KEY_ACTIONS = {
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


def key_needs(action: str, resource: str, stack: Stack, by: str) -> Iterator[Need]:
    """The permissions on the customer managed key for an action, if the resource is encrypted with it."""
    if resource != EVERYTHING and stack.uses_own_key(resource):
        for used in KEY_ACTIONS.get(action, ()):
            yield Need(used, stack.parameters["KmsKeyArn"], by)
