"""The permissions that AWS services need of the stack's roles, with the AWS page of each.

No code of this project makes these calls. They follow from the resources: event sources, logs, traces, schedules, jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tests.least_privilege.call_resources import DELIVERS_LOGS, MAKES_INTERFACES, SAMPLES, TRACES, arn, key_needs
from tests.least_privilege.policies import EVERYTHING, Need
from tests.least_privilege.recording import Call
from tests.least_privilege.resolved_template import ACCOUNT, PARTITION, Stack

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
                assert queue.split(":")[2] == "sqs", f"{queue}: add this target to tests/least_privilege/services.py"
                yield Need("sqs:SendMessage", queue, by)
                yield from key_needs("sqs:SendMessage", queue, stack, by)
