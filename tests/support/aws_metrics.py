"""Metrics that AWS writes by itself, with the dimensions under which it writes them; only those that are used here."""

from __future__ import annotations

QUEUE, FUNCTION, MACHINE = ("QueueName",), ("FunctionName",), ("StateMachineArn",)
# Namespace and dimensions -> names. A metric asked for under other dimensions is another one, without data.
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
# Operands that AWS writes only when there is something to count: a zero is missing. A queue's number
# of visible messages is written while the queue is in use.
ONLY_WHEN_THERE_IS_SOMETHING = {"NumberOfMessagesReceived", "WriteKeyRangeThroughputThrottleEvents"}
# DynamoDB's: an alarm on one of these itself keeps its state where data is missing, whatever it says of missing data
# (CloudWatch guide, "Configuring how CloudWatch alarms treat missing data").
MISSING_IS_IGNORED = "AWS/DynamoDB"
# The resources that a dimension's value may name.
NAMED_BY = {
    "QueueName": "AWS::SQS::Queue",
    "FunctionName": "AWS::Serverless::Function",
    "StateMachineArn": "AWS::Serverless::StateMachine",
    "ScheduleGroup": "AWS::Scheduler::ScheduleGroup",
}
