"""The permissions that recorded calls and AWS services need of the stack's roles.

Most operations need the action of their own name on the one resource in their parameters. The tables here list the
exceptions (Service Authorization Reference, "Actions" of each service). No code of this project makes the services'
calls. They follow from the resources: event sources, logs, traces, schedules, jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tests.template.roles.policies import EVERYTHING, Need
from tests.template.roles.recording import Call
from tests.template.roles.resolved_template import ACCOUNT, PARTITION, REGION, Stack

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
# Part of a transaction -> its action. The transaction itself has none (DynamoDB guide, "Using IAM with DynamoDB
# transactions").
PARTS = {
    "ConditionCheck": "dynamodb:ConditionCheckItem",
    "Delete": "dynamodb:DeleteItem",
    "Put": "dynamodb:PutItem",
    "Update": "dynamodb:UpdateItem",
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
WITHOUT_RESOURCE = {*TRACES, *SAMPLES, *DELIVERS_LOGS, *MAKES_INTERFACES}


def of_call(call: Call, stack: Stack) -> Iterator[Need]:
    """The permissions for a call itself, for the role that it passes and for the key that it uses."""
    for action, resource in asked(call):
        yield Need(action, resource, " ".join((str(call), *context(call).values())), context(call))
        yield from key_needs(action, resource, stack, str(call))
    if call.operation == "CreateSchedule":
        passed = {"iam:PassedToService": "scheduler.amazonaws.com"}
        yield Need("iam:PassRole", call.parameters["Target"]["RoleArn"], str(call), passed)


def asked(call: Call) -> Iterator[tuple[str, str]]:
    """Each action of a call, with its resource."""
    if call.operation == "TransactWriteItems":
        for part in call.parameters["TransactItems"]:
            ((kind, write),) = part.items()
            yield PARTS[kind], arn("dynamodb", f"table/{write['TableName']}")
        return
    action = ACTIONS.get((call.service, call.operation), f"{PREFIXES.get(call.service, call.service)}:{call.operation}")
    yield from ((action, resource) for resource in resources(call))


def context(call: Call) -> dict[str, str]:
    """The condition keys of a call (Service Authorization Reference, "Condition keys" of each service)."""
    if call.service != "events":
        return {}
    (source,) = {entry["Source"] for entry in call.parameters["Entries"]}
    return {"events:source": source}


def resources(call: Call) -> Iterator[str]:  # noqa: PLR0912 - a service, a case
    """The ARNs of the resources of a call that is no transaction."""
    parameters = call.parameters
    match call.service:
        case "dynamodb" if "RequestItems" in parameters:
            yield from (arn("dynamodb", f"table/{table}") for table in parameters["RequestItems"])
        case "dynamodb":
            index = f"/index/{parameters['IndexName']}" if "IndexName" in parameters else ""
            yield arn("dynamodb", f"table/{parameters['TableName']}{index}")
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
            yield parameters["taskToken"]  # in cases.py, the ARN of the caller's state machine
        case "stepfunctions":
            yield parameters.get("executionArn") or parameters["stateMachineArn"]
        case _:
            raise NotImplementedError(f"{call.service}: add its resources to tests/template/roles/needs.py")


def arn(service: str, rest: str) -> str:
    return f"arn:{PARTITION}:{service}:{REGION}:{ACCOUNT}:{rest}"


def event_bus(name: str) -> str:
    return name if name.startswith("arn:") else arn("events", f"event-bus/{name}")


READ = ("kms:Decrypt",)
WRITE = ("kms:Decrypt", "kms:GenerateDataKey")
# KMS actions that the caller of an action needs for a customer managed key. The pages: SQS guide, "Key management"; SNS
# guide, "Key management"; DynamoDB guide, "DynamoDB encryption at rest usage notes" (the table has its key already, and
# each caller has it decrypted); Step Functions guide, "Data at rest encryption in Step Functions", the API callers;
# Scheduler guide, "Using identity-based policies in EventBridge Scheduler"; S3 guide, "Protecting data with server-side
# encryption using KMS keys"; Secrets Manager guide, "Secret encryption and decryption". Other actions use no key.
KEY_ACTIONS = {
    "sqs:SendMessage": WRITE,
    "sqs:ReceiveMessage": READ,
    "sns:Publish": WRITE,
    "states:DescribeExecution": READ,
    "states:DescribeStateMachine": READ,
    "scheduler:CreateSchedule": (*WRITE, "kms:DescribeKey"),
    "dynamodb:BatchGetItem": READ,
    "dynamodb:ConditionCheckItem": READ,
    "dynamodb:GetItem": READ,
    "dynamodb:PutItem": READ,
    "dynamodb:Query": READ,
    "dynamodb:Scan": READ,
    "dynamodb:UpdateItem": READ,
    "s3:GetObject": READ,
    "s3:PutObject": WRITE,
    "secretsmanager:GetSecretValue": READ,
}


def key_needs(action: str, resource: str, stack: Stack, by: str) -> Iterator[Need]:
    """The permissions on the customer managed key for an action, if the resource is encrypted with it."""
    if resource != EVERYTHING and stack.uses_own_key(resource):
        via = {"kms:ViaService": f"s3.{REGION}.amazonaws.com"} if action.startswith("s3:") else {}
        for used in KEY_ACTIONS.get(action, ()):
            yield Need(used, stack.parameters["KmsKeyArn"], by, via)


# ------------------------------------------------------------------------------------------- use of roles by services

RECEIVES = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes")


def of_function(stack: Stack, name: str) -> Iterator[Need]:
    """Lambda's use of a function's role."""
    function = stack.properties(name)
    group = stack.arn(function["LoggingConfig"]["LogGroup"]).removesuffix("*") + "log-stream:2027/01/15/[$LATEST]1"
    by = 'Lambda guide, "Sending Lambda function logs to CloudWatch Logs"'
    yield from (Need(action, group, by) for action in ("logs:CreateLogStream", "logs:PutLogEvents"))
    if function.get("TracingConfig", {}).get("Mode") == "Active":
        by = 'Lambda guide, "Visualize Lambda function invocations using AWS X-Ray"'
        yield from (Need(action, EVERYTHING, by) for action in TRACES)
    if "VpcConfig" in function:
        by = 'Lambda guide, "Giving Lambda functions access to resources in an Amazon VPC"'
        yield from (Need(action, EVERYTHING, by) for action in MAKES_INTERFACES)
    if "KmsKeyArn" in function:
        yield Need("kms:Decrypt", function["KmsKeyArn"], 'Lambda guide, "Securing Lambda environment variables"')
    for source in stack.of_type("AWS::Lambda::EventSourceMapping").values():
        if source["FunctionName"] == stack.physical(name):
            queue = source["EventSourceArn"]
            by = 'Lambda guide, "Creating and configuring an Amazon SQS event source mapping"'
            for action in RECEIVES:
                yield Need(action, queue, by)
                yield from key_needs(action, queue, stack, by)


def of_state_machine(stack: Stack, name: str) -> Iterator[Need]:
    """Step Functions' use of the role, without the calls of the states."""
    machine = stack.properties(name)
    if machine.get("LoggingConfiguration"):
        by = 'Step Functions guide, "Using CloudWatch Logs to log execution history in Step Functions"'
        yield from (Need(action, EVERYTHING, by) for action in DELIVERS_LOGS)
    if machine.get("TracingConfiguration", {}).get("Enabled"):
        by = 'Step Functions guide, "AWS X-Ray and Step Functions"'
        yield from (Need(action, EVERYTHING, by) for action in (*TRACES, *SAMPLES))

    if key := machine["EncryptionConfiguration"].get("KmsKeyId"):
        by = 'Step Functions guide, "Data at rest encryption in Step Functions": the execution role, also for logs'
        yield from (Need(action, key, by) for action in WRITE)

    # CreateStateMachine fails without them, because the definition contains startExecution.sync.
    by = 'Step Functions guide, "IAM policies for calling Step Functions workflows": the managed rule'
    rule = arn("events", "rule/StepFunctionsGetEventsForStepFunctionsExecutionRule")
    yield from (Need(f"events:{action}", rule, by) for action in ("PutTargets", "PutRule", "DescribeRule"))


def of_glue_job(stack: Stack, name: str) -> Iterator[Need]:
    """Glue's use of the job's role, without the calls of the script."""
    by = 'Glue guide, "Create an IAM role for AWS Glue"'
    script = f"arn:{PARTITION}:s3:::{stack.parameters['ArtifactBucketName'].replace('*', '1a2b3c')}/script.py"
    yield Need("s3:GetObject", script, f"{by}: the script", {"aws:ResourceAccount": ACCOUNT})
    for kind in ("output", "error"):
        group = f"arn:{PARTITION}:logs:us-east-1:{ACCOUNT}:log-group:/aws-glue/python-jobs/{kind}"
        yield Need("logs:CreateLogGroup", group, f"{by}: its logs")
        for action in ("logs:CreateLogStream", "logs:PutLogEvents"):
            yield Need(action, f"{group}:log-stream:jr_1", f"{by}: its logs")


def of_schedules(stack: Stack, calls: Iterable[Call], role: str) -> Iterator[Need]:
    """Scheduler's use of a role, by the recorded schedules: it sends to the target or to the dead-letter queue.

    Scheduler guide, "Using templated targets in EventBridge Scheduler" and "Configuring a dead-letter queue".
    """
    by = 'Scheduler guide, "Setting up Amazon EventBridge Scheduler": the execution role'
    for call in calls:
        target: dict[str, Any] = call.parameters.get("Target", {}) if call.operation == "CreateSchedule" else {}
        if target and target["RoleArn"] == stack.arn(role):
            for queue in (target["Arn"], target["DeadLetterConfig"]["Arn"]):
                assert queue.split(":")[2] == "sqs", f"{queue}: add this target to tests/template/roles/needs.py"
                yield Need("sqs:SendMessage", queue, by)
                yield from key_needs("sqs:SendMessage", queue, stack, by)
            if key := call.parameters.get("KmsKeyArn"):
                yield Need("kms:Decrypt", key, 'Scheduler guide, "Encryption at rest in EventBridge Scheduler"')
