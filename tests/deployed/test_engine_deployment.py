"""Deploying a template: its outputs, an error with the stack's reason, and when it is built again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dev.emulator import deployment
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


def test_a_deployment_writes_its_outputs_and_a_failed_one_states_the_reason(tmp_path: Path) -> None:
    template = tmp_path / "template.yaml"
    template.write_text(TEMPLATE)
    with EmbeddedAws.start(tmp_path / "state") as aws:
        outputs = aws.deploy({"Retention": "120"}, template=template)
        written = json.loads((aws.state_dir / "outputs.json").read_text())
        keys = {"access_key_id": "test", "secret_access_key": "test", "region": "us-east-1", "container_host": ""}
        sources = deployment.digest_of_sources()
        assert written == keys | {"endpoint": aws.endpoint, "outputs": outputs, "sources": sources}
        attributes = aws.client("sqs").get_queue_attributes(QueueUrl=outputs["QueueUrl"], AttributeNames=["All"])
        assert attributes["Attributes"]["MessageRetentionPeriod"] == "120"
        with pytest.raises(DeploymentError, match=r"Queue: \w+FAILED: .*MessageRetentionPeriod"):
            aws.deploy({"Retention": "5"}, template=template)


def test_the_projects_template_is_built_again_if_a_source_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template, handler, build_dir = tmp_path / "template.yaml", tmp_path / "functions" / "app.py", tmp_path / "sam"
    handler.parent.mkdir()
    for source in (template, handler):
        source.write_text("one")
    monkeypatch.setattr(deployment, "ROOT", tmp_path)
    monkeypatch.setattr(deployment, "TEMPLATE", template)
    monkeypatch.setattr(deployment, "BUILD_DIR", build_dir)
    monkeypatch.setattr(deployment, "_sam", lambda *_: build_dir.mkdir(exist_ok=True))

    def build() -> int:
        said: list[str] = []
        with deployment.built(template, tmp_path, said.append):
            return len(said)

    assert (build(), build()) == (1, 0)
    for source in (template, handler, handler.with_name("another.py")):
        source.write_text("two")
        assert (build(), build()) == (1, 0)
    (build_dir / "sources.sha256").unlink()  # as after a failed build
    assert (build(), build()) == (1, 0)
