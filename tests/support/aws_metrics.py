"""Metrics that AWS writes by itself, with the dimensions under which it writes them; only those that are used here."""

from __future__ import annotations

QUEUE, FUNCTION, MACHINE = ("QueueName",), ("FunctionName",), ("StateMachineArn",)
# Namespace -> (names, dimensions). A metric asked for under other dimensions is another one, without data.
KNOWN: dict[str, tuple[set[str], tuple[str, ...]]] = {
    # SQS guide, "Available CloudWatch metrics for Amazon SQS"
    "AWS/SQS": (
        {
            "ApproximateAgeOfOldestMessage",
            "ApproximateNumberOfMessagesDelayed",
            "ApproximateNumberOfMessagesNotVisible",
            "ApproximateNumberOfMessagesVisible",
            "NumberOfMessagesReceived",
        },
        QUEUE,
    ),
    # Lambda guide, "Types of metrics for Lambda functions"
    "AWS/Lambda": ({"Duration", "Errors", "RecursiveInvocationsDropped", "Throttles"}, FUNCTION),
    # Step Functions guide, "Monitoring Step Functions metrics using Amazon CloudWatch"
    "AWS/States": (
        {
            "ExecutionThrottled",
            "ExecutionsAborted",
            "ExecutionsFailed",
            "ExecutionsStarted",
            "ExecutionsSucceeded",
            "ExecutionsTimedOut",
        },
        MACHINE,
    ),
    # API Gateway guide, "Amazon API Gateway dimensions and metrics"
    "AWS/ApiGateway": ({"5XXError", "Latency"}, ("ApiName", "Stage")),
    # EventBridge Scheduler guide, "Monitoring Amazon EventBridge Scheduler with Amazon CloudWatch"
    "AWS/Scheduler": (
        {
            "InvocationAttemptCount",
            "InvocationsFailedToBeSentToDeadLetterCount",
            "InvocationsSentToDeadLetterCount",
            "TargetErrorCount",
        },
        ("ScheduleGroup",),
    ),
    # DynamoDB guide, "DynamoDB metrics and dimensions"
    "AWS/DynamoDB": ({"ThrottledRequests"}, ("Operation", "TableName")),
}
# The resources that a dimension's value may name.
NAMED_BY = {
    "QueueName": "AWS::SQS::Queue",
    "FunctionName": "AWS::Serverless::Function",
    "StateMachineArn": "AWS::Serverless::StateMachine",
    "ScheduleGroup": "AWS::Scheduler::ScheduleGroup",
}
