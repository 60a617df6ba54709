"""cloudformation_watching: a template with an alarm over an expression and with a saved query can be deployed."""

from typing import Any

from dev.emulator.aws import EmbeddedAws
from tests.engine.test_cloudformation_properties import created

VISIBLE = {"Namespace": "AWS/SQS", "MetricName": "ApproximateNumberOfMessagesVisible"}
TEMPLATE: dict[str, Any] = {
    "Resources": {
        "Alarm": {
            "Type": "AWS::CloudWatch::Alarm",
            "Properties": {
                "AlarmDescription": "Twice as many as there are",
                "Metrics": [
                    {"Id": "twice", "Expression": "2 * visible"},
                    {
                        "Id": "visible",
                        "ReturnData": False,
                        "MetricStat": {"Metric": VISIBLE, "Period": 60, "Stat": "Sum"},
                    },
                ],
                "EvaluationPeriods": 1,
                "Threshold": 0,
                "ComparisonOperator": "GreaterThanThreshold",
            },
        },
        "Query": {
            "Type": "AWS::Logs::QueryDefinition",
            "Properties": {"Name": "newest", "QueryString": "fields @timestamp | limit 1"},
        },
    },
    "Outputs": {
        "Alarm": {"Value": {"Ref": "Alarm"}},
        "Query": {"Value": {"Fn::GetAtt": ["Query", "QueryDefinitionId"]}},
    },
}


def test_a_stack_may_have_an_alarm_over_an_expression_and_a_saved_query(aws: EmbeddedAws) -> None:
    outputs = created(aws, "watching", TEMPLATE)
    assert outputs["Query"]
    (alarm,) = aws.client("cloudwatch").describe_alarms(AlarmNames=[outputs["Alarm"]])["MetricAlarms"]
    assert (alarm["AlarmDescription"], alarm["StateValue"]) == ("Twice as many as there are", "INSUFFICIENT_DATA")
