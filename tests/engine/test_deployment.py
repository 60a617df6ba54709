"""Deploying a template: its outputs, and an error that carries the stack's own reason."""

import json
from pathlib import Path

import pytest

from dev.emulator.aws import EmbeddedAws
from dev.emulator.deployment import DeploymentError

TEMPLATE = """
AWSTemplateFormatVersion: "2010-09-09"
Transform: AWS::Serverless-2016-10-31
Parameters:
  Retention: {Type: Number, Default: 60}
Resources:
  Queue:
    Type: AWS::SQS::Queue
    Properties: {MessageRetentionPeriod: !Ref Retention}
Outputs:
  QueueUrl: {Value: !Ref Queue}
"""


def test_a_deployment_writes_its_outputs_and_a_failed_one_says_why(aws: EmbeddedAws, tmp_path: Path) -> None:
    template = tmp_path / "template.yaml"
    template.write_text(TEMPLATE)
    lines: list[str] = []
    outputs = aws.deploy({"Retention": "120"}, template=template, say=lines.append)
    written = json.loads((aws.state_dir / "outputs.json").read_text())
    assert written.pop("endpoint") == aws.endpoint
    assert written.pop("outputs") == outputs
    assert written == {"region": "us-east-1", "access_key_id": "test", "secret_access_key": "test"}
    assert lines == ["sam build", "sam deploy"]
    attributes = aws.client("sqs").get_queue_attributes(QueueUrl=outputs["QueueUrl"], AttributeNames=["All"])
    assert attributes["Attributes"]["MessageRetentionPeriod"] == "120"
    with pytest.raises(DeploymentError, match=r"Queue: \w+FAILED: .*MessageRetentionPeriod"):
        aws.deploy({"Retention": "5"}, template=template)
