"""`sam deploy --guided` with Enter as the answer to each question, in an account whose concurrency limit is 10.

Then the stack is updated to the slots alone; tests/template/test_flow_combinations.py has the other choices. The tests
share the stack, in this order.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from dev.emulator.aws import EmbeddedAws, silent
from dev.emulator.deployment import SAM, STACK_NAME, built
from dev.emulator.environment import ACCESS_KEY, REGION, ROOT, child_environment
from slotkeeper_cli.app import app
from slotkeeper_cli.stack_connection import LOCAL_FILE
from tests.deployed.deployed_stack import JOB, DeployedStack, update
from tests.template.parsing import parsed, parsed_template

NEW_ACCOUNT = {"LAMBDA_ACCOUNT_CONCURRENCY": "10"}
QUESTIONS = 200  # more answers than questions
# In bytes, 450 KB: CloudFormation's former quota. The Serverless Application Repository documents no quota, and
# CloudFormation reads 1 MB today (CloudFormation guide, "Understand CloudFormation quotas").
LONGEST_TEMPLATE = 460_800
# Resource type -> its property that names a file or a folder, which is uploaded.
UPLOADED = {
    "AWS::Serverless::Function": "CodeUri",
    "AWS::Serverless::LayerVersion": "ContentUri",
    "AWS::StepFunctions::StateMachine": "DefinitionS3Location",
    "AWS::Glue::Job": "Command",
}
TEMPLATE = parsed_template()
SLOTS = {
    "JanitorSchedule": "rate(1 day)",
    "MoreGlueJobArns": f"arn:aws:glue:us-east-1:000000000000:job/{JOB}",
}


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    with EmbeddedAws.start(tmp_path_factory.mktemp("account"), environment=NEW_ACCOUNT) as started:
        yield started


def _sam(aws: EmbeddedAws, *arguments: str, answers: str = "") -> str:
    """Run SAM CLI in the account with the repository's own samconfig.toml. Raises if it fails, as without an answer."""
    config = ["--config-file", str(aws.state_dir / "config.toml")]
    ran = subprocess.run(
        [sys.executable, "-P", "-c", SAM, *arguments, *config],
        cwd=aws.state_dir,
        env=child_environment(aws.endpoint, {"SAM_CLI_POLL_DELAY": "0.2"}),
        input=answers,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
    return ran.stdout


def test_enter_at_each_question_of_guided_deploys_the_defaults_and_a_later_deployment_asks_nothing(
    aws: EmbeddedAws,
) -> None:
    shutil.copy(ROOT / "samconfig.toml", aws.state_dir / "config.toml")
    with built(ROOT / "template.yaml", aws.state_dir, silent) as build_dir:
        template = ["--template-file", str(build_dir / "template.yaml")]
        output = _sam(aws, "deploy", "--guided", *template, answers="\n" * QUESTIONS)
        assert "has no authentication" not in output
        assert "Deploy this changeset?" not in output
        (stack,) = aws.client("cloudformation").describe_stacks(StackName=STACK_NAME)["Stacks"]
        assert stack["StackStatus"] == "CREATE_COMPLETE"
        given = {each["ParameterKey"]: each["ParameterValue"] for each in stack["Parameters"]}
        assert given == {name: str(each["Default"]) for name, each in TEMPLATE["Parameters"].items()}
        limit = aws.client("lambda").get_account_settings()["AccountLimit"]
        assert (limit["ConcurrentExecutions"], limit["UnreservedConcurrentExecutions"]) == (10, 10)

        # It reads the saved answers.
        assert "No changes to deploy" in _sam(aws, "deploy", *template)


def test_every_file_that_the_template_names_was_uploaded_as_sam_publish_requires(aws: EmbeddedAws) -> None:
    """`sam deploy` packages as `sam package` does."""
    s3 = aws.client("s3")
    objects = [
        (bucket["Name"], each["Key"])
        for bucket in s3.list_buckets()["Buckets"]
        for each in s3.list_objects_v2(Bucket=bucket["Name"]).get("Contents", [])
    ]

    def content(bucket: str, key: str) -> bytes:
        found: bytes = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        return found

    def uploaded(address: Any) -> bytes:
        """The object at an address in the packaged template, `s3://...` or its parts."""
        if isinstance(address, dict):
            return content(address["Bucket"], address["Key"])
        parts = urlsplit(address)
        assert parts.scheme == "s3", address
        return content(parts.netloc, parts.path.removeprefix("/"))

    (packaged,) = {content(*each) for each in objects if each[1].endswith(".template")}
    assert len(packaged) <= LONGEST_TEMPLATE
    template = parsed(packaged.decode())
    application = template["Metadata"]["AWS::ServerlessRepo::Application"]
    assert uploaded(application["LicenseUrl"]) == (ROOT / "LICENSE").read_bytes()
    assert uploaded(application["ReadmeUrl"]) == (ROOT / "README.md").read_bytes()
    named = [
        each["Properties"][UPLOADED[each["Type"]]]
        for each in template["Resources"].values()
        if each["Type"] in UPLOADED
    ]
    assert len(named) == 11
    assert all(uploaded(each.get("ScriptLocation", each) if isinstance(each, dict) else each) for each in named)


@pytest.fixture
def slotkeeper(aws: EmbeddedAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a command on the stack; returns its output or its error."""
    file, keys = tmp_path / "outputs.json", {"access_key_id": ACCESS_KEY, "secret_access_key": ACCESS_KEY}
    file.write_text(json.dumps({"endpoint": aws.endpoint, "region": REGION} | keys))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(LOCAL_FILE, str(file))

    def run(*arguments: str) -> str:
        ended = CliRunner(mix_stderr=False).invoke(app, [*arguments, "--local", "--json"])
        return ended.stdout or f"{type(ended.exception).__name__}: {ended.exception}"

    return run


def _logical_ids(aws: EmbeddedAws) -> set[str]:
    pages = aws.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=STACK_NAME)
    each = [one for page in pages for one in page["StackResourceSummaries"]]
    return {one["LogicalResourceId"] for one in each if one["ResourceStatus"] != "DELETE_COMPLETE"}


def _conditional(condition: str) -> set[str]:
    return {name for name, resource in TEMPLATE["Resources"].items() if resource.get("Condition") == condition}


def test_the_slots_alone_admit_a_request(aws: EmbeddedAws) -> None:
    aws.outputs = update(aws, **SLOTS)
    assert aws.outputs.keys() == {n for n, output in TEMPLATE["Outputs"].items() if "Condition" not in output}
    assert not (_conditional("HasChatbot") | _conditional("HasWorker")) & _logical_ids(aws)
    stack = DeployedStack(aws)
    process = stack.process()
    name = stack.send(process, "r")
    stack.wait_until_running(name)
    assert stack.holders(process) == {name}
    stack.end(process, "r")
    assert stack.wait_for_status(name, "SUCCEEDED")
    stack.wait_until_free(process)


def test_the_command_reports_a_flow_that_is_not_deployed(slotkeeper: Callable[..., Any]) -> None:
    looked = json.loads(slotkeeper("doctor"))
    assert looked["not_deployed"] == ["chatbot", "worker"]
    levels = {one["check"]: one["level"] for one in looked["checks"]}
    absent = {"worker-concurrency", "retries", "retry-policy", "breakers"}
    assert {name for name, level in levels.items() if level == "absent"} == absent
    # The test's job is not one of the template.
    assert {name for name, level in levels.items() if level == "bad"} <= {"targets"}
    assert not [f for one in looked["checks"] for f in one["findings"] if "not checked" in f["what"]]
