"""The metrics of AWS services that the template uses, with the dimensions under which AWS writes them."""

from __future__ import annotations

QUEUE, FUNCTION, MACHINE = ("QueueName",), ("FunctionName",), ("StateMachineArn",)
# Namespace and dimensions -> names. Under other dimensions, a metric of the same name has no data.
KNOWN: dict[tuple[str, tuple[str, ...]], set[str]] = {
    # SQS guide, "Available CloudWatch metrics for Amazon SQS"
    ("AWS/SQS", QUEUE): {
        "ApproximateAgeOfOldestMessage",
        "ApproximateNumberOfMessagesDelayed",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesVisible",
        "NumberOfMessagesReceived",
    },
    # Lambda guide, "Types of metrics for Lambda functions"
    ("AWS/Lambda", FUNCTION): {"Duration", "Errors", "RecursiveInvocationsDropped", "Throttles"},
    # Step Functions guide, "Monitoring Step Functions metrics using Amazon CloudWatch"
    ("AWS/States", MACHINE): {
        "ExecutionThrottled",
        "ExecutionsAborted",
        "ExecutionsFailed",
        "ExecutionsStarted",
        "ExecutionsSucceeded",
        "ExecutionsTimedOut",
    },
    # API Gateway guide, "Amazon API Gateway dimensions and metrics"
    ("AWS/ApiGateway", ("ApiName", "Stage")): {"5XXError", "Latency"},
    # EventBridge Scheduler guide, "Monitoring Amazon EventBridge Scheduler with Amazon CloudWatch"
    ("AWS/Scheduler", ("ScheduleGroup",)): {
        "InvocationAttemptCount",
        "InvocationsFailedToBeSentToDeadLetterCount",
        "InvocationsSentToDeadLetterCount",
        "TargetErrorCount",
    },
    # DynamoDB guide, "DynamoDB metrics and dimensions"
    ("AWS/DynamoDB", ("Operation", "TableName")): {"ThrottledRequests"},
    # the same guide, "CloudWatch throttling metrics"
    ("AWS/DynamoDB", ("TableName",)): {"WriteKeyRangeThroughputThrottleEvents"},
}
# AWS writes these only above zero. It writes a queue's number of visible messages while the queue is in use.
ONLY_ABOVE_ZERO = {"NumberOfMessagesReceived", "WriteKeyRangeThroughputThrottleEvents"}
# An alarm on a metric of this namespace ignores missing data, also with another TreatMissingData (CloudWatch guide,
# "Configuring how CloudWatch alarms treat missing data").
MISSING_IS_IGNORED = "AWS/DynamoDB"
# Dimension -> type of the resource that its value names.
NAMED_BY = {
    "QueueName": "AWS::SQS::Queue",
    "FunctionName": "AWS::Lambda::Function",
    "StateMachineArn": "AWS::StepFunctions::StateMachine",
    "ScheduleGroup": "AWS::Scheduler::ScheduleGroup",
}
