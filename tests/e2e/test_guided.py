"""`sam deploy`, and --guided with Enter as the answer to each question, in an account whose concurrency limit is 10."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.emulator.aws import EmbeddedAws, silent
from dev.emulator.deployment import SAM, built
from dev.emulator.environment import ROOT, child_environment

NEW_ACCOUNT = {"LAMBDA_ACCOUNT_CONCURRENCY": "10"}
QUESTIONS = 200  # more answers than questions


@pytest.fixture
def new_account(tmp_path: Path) -> Iterator[EmbeddedAws]:
    with EmbeddedAws.start(tmp_path, environment=NEW_ACCOUNT) as aws:
        yield aws


def _sam(aws: EmbeddedAws, *arguments: str, answers: str = "") -> str:
    """Run SAM CLI in the account with the repository's own samconfig.toml. Raises if it fails, as without an answer."""
    config = ["--config-file", str(aws.state_dir / "config.toml")]
    ran = subprocess.run(
        [sys.executable, "-P", "-c", SAM, *arguments, *config],
        cwd=aws.state_dir,
        env=child_environment(aws.endpoint, {"SAM_CLI_POLL_DELAY": "1"}),
        input=answers,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
    return ran.stdout


def test_a_deployment_asks_nothing_and_enter_at_each_question_of_guided_changes_nothing(
    new_account: EmbeddedAws,
) -> None:
    folder = new_account.state_dir
    shutil.copy(ROOT / "samconfig.toml", folder / "config.toml")
    template = ["--template-file", str(folder / "sam" / "template.yaml")]
    with built(ROOT / "template.yaml", folder, silent) as shared:  # its cache saves the download
        shutil.copy(shared.with_name("build.toml"), folder)
        cache = ["--cache-dir", f"{shared}-cache"]
        source = ["--template-file", str(ROOT / "template.yaml")]
        _sam(new_account, "build", *source, "--build-dir", str(folder / "sam"), *cache)

    _sam(new_account, "deploy", *template)
    (stack,) = new_account.client("cloudformation").describe_stacks(StackName="slotkeeper")["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    limit = new_account.client("lambda").get_account_settings()["AccountLimit"]
    assert (limit["ConcurrentExecutions"], limit["UnreservedConcurrentExecutions"]) == (10, 10)

    output = _sam(new_account, "deploy", "--guided", *template, answers="\n" * QUESTIONS)
    assert "has no authentication" not in output
    assert "Deploy this changeset?" not in output
    assert "No changes to deploy" in output

    # A later deployment reads the saved answers.
    assert "No changes to deploy" in _sam(new_account, "deploy", *template)
