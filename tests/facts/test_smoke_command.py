"""The smoke test's command without an AWS account: its refusals, its costs, its question, its report."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from click.testing import CliRunner, Result
from moto import mock_aws
from rich.console import Console

from dev.emulator.environment import ROOT
from dev.smoke import smoke_command as command
from dev.smoke import smoke_report
from dev.smoke.check_catalogue import CHECKS
from dev.smoke.check_context import RunMessages
from dev.smoke.facts import CheckResult, FactAnswer, Verdict
from dev.smoke.smoke_report import LONGEST_TEXT, mask
from dev.smoke.stack_under_test import _OUTPUTS, StackUnderTest

OUTPUTS = dict.fromkeys(_OUTPUTS, "x") | {"WorkflowArn": "arn:aws:states:eu-north-1:123456789012:stateMachine:w"}
MISSING = ClientError({"Error": {"Code": "ValidationError", "Message": "Stack with id x does not exist"}}, "D")
FACT = CHECKS[0].facts[0]
Ran = Callable[..., Result]


class Answers:
    """A client of any service that answers only the calls before the command's question."""

    def __init__(self, status: str = "UPDATE_COMPLETE", outputs: dict[str, str] | None = None) -> None:
        listed = OUTPUTS if outputs is None else outputs
        self._stack = {
            "StackStatus": status,
            "Outputs": [{"OutputKey": key, "OutputValue": value} for key, value in listed.items()],
        }

    def describe_stacks(self, StackName: str) -> Any:
        if StackName != "mine":
            raise MISSING
        return {"Stacks": [self._stack]}

    def describe_stack_resource(self, **_asked: Any) -> Any:
        return {"StackResourceDetail": {"PhysicalResourceId": "job"}}

    def describe_state_machine(self, **_asked: Any) -> Any:
        return {"definition": "{}", "roleArn": "r"}

    def get_function_configuration(self, **_asked: Any) -> Any:
        return {"Environment": {"Variables": {"CHECK_GAP_SECONDS": "30"}}}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Runs the command on an account. Without `results`, it fails if a check begins."""

    def run(*options: str, answers: Answers | None = None, results: list[CheckResult] | None = None) -> Result:
        client = answers or Answers()
        monkeypatch.setattr(
            command,
            "in_account",
            lambda name, _profile, _region: StackUnderTest(name, "eu-north-1", False, lambda _: client),
        )
        monkeypatch.setattr(
            command, "run_checks", lambda *_about: ("smoke-1", results) if results else pytest.fail("it went to work")
        )
        return CliRunner().invoke(command.main, list(options))

    return run


def test_without_a_yes_it_prints_the_costs_and_spends_nothing(ran: Ran) -> None:
    result = ran("--stack", "mine")
    assert result.exit_code == 2
    assert "not confirmed: nothing was done" in result.output
    for expected in ("account 123456789012, eu-north-1", "list prices of us-east-1", "2 failed requests"):
        assert expected in result.output


@pytest.mark.parametrize(
    ("name", "answers", "said"),
    [
        ("other", Answers(), "there is no stack 'other' in eu-north-1"),
        ("mine", Answers(outputs={"Url": "x"}), "is not one of Slotkeeper's"),
        ("mine", Answers(status="UPDATE_IN_PROGRESS"), "is UPDATE_IN_PROGRESS: wait until it is deployed"),
    ],
)
def test_a_stack_that_is_missing_foreign_or_not_ready_is_refused(
    ran: Ran, name: str, answers: Answers, said: str
) -> None:
    result = ran("--stack", name, "--yes", answers=answers)
    assert (result.exit_code, said in result.output) == (2, True), result.output


def test_the_page_lists_every_check_and_every_verdict() -> None:
    page = (ROOT / "dev" / "smoke" / "README.md").read_text()
    assert all(f"| `{check.name}` |" in page for check in CHECKS)
    assert all(f"- {verdict}: " in page for verdict in Verdict)


def test_the_list_has_each_fact_with_what_depends_on_it() -> None:
    output = io.StringIO()
    smoke_report.show_catalogue(Console(file=output, width=3000), CHECKS)
    for fact in (fact for check in CHECKS for fact in check.facts):
        assert all(part in output.getvalue() for part in (fact.name, fact.asks, fact.expects, fact.depends))


@pytest.mark.parametrize(
    ("verdict", "left", "code"),
    [
        (Verdict.AS_ASSUMED, [], 0),
        (Verdict.NOT_SHOWN, [], 0),
        (Verdict.DIFFERENT, [], 1),
        (Verdict.AS_ASSUMED, ["process smoke-1-groups-a: denied"], 1),
    ],
)
def test_a_different_answer_or_a_remaining_resource_fails_the_command(
    ran: Ran, tmp_path: Path, verdict: Verdict, left: list[str], code: int
) -> None:
    answers = [FactAnswer(FACT, verdict, "after 20 s", FACT.depends)]
    done = ran("--stack", "mine", "--yes", "--folder", str(tmp_path), results=[CheckResult("ring", answers, left)])
    assert done.exit_code == code, done.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["ok"], report["verdicts"][verdict]) == (code == 0, 1)
    for text in (" ".join(done.output.split()), " ".join((tmp_path / "report.txt").read_text().split())):
        assert all(each in text for each in (str(verdict), *left))
        assert ("It means: S6" in text) == (verdict is Verdict.DIFFERENT)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("arn:aws:states:eu-west-1:123456789012:execution:w:n", "arn:aws:states:eu-west-1:<account>:execution:w:n"),
        ("https://sqs.eu-west-1.amazonaws.com/123456789012/q", "https://sqs.eu-west-1.amazonaws.com/<account>/q"),
        ("https://bucket/key?X-Amz-Signature=abc&b=1 next", "https://bucket/key?<query> next"),
        ("token " + "AQCw" * 160 + "=", "token <641 characters>"),
        ("key AKIA" + "A" * 16, "key <access key>"),
        ("1234567890123456 and 1795478799049", "1234567890123456 and 1795478799049"),
        ("a " * LONGEST_TEXT, "a " * (LONGEST_TEXT // 2) + f"… ({2 * LONGEST_TEXT} characters)"),
    ],
)
def test_accounts_tokens_keys_and_signatures_are_masked_and_numbers_are_not(text: str, masked: str) -> None:
    assert mask({"answer": [text, 1]}) == {"answer": [masked, 1]}


def test_messages_of_others_stay_and_its_own_are_received() -> None:
    with mock_aws():
        sqs = boto3.client("sqs", region_name="us-east-1")
        url = sqs.create_queue(QueueName="failed")["QueueUrl"]
        bodies = ["theirs", '{"process": "smoke-1-stopped"}', "theirs too", '{"process": "smoke-2-stopped"}']
        for body in bodies:
            sqs.send_message(QueueUrl=url, MessageBody=body)
        messages = RunMessages(sqs, "smoke-1")
        own = bodies.pop(1)
        assert [messages.collect(url) for _ in range(2)] == [[own]] * 2
        left = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
        assert sorted(message["Body"] for message in left) == sorted(bodies)
