"""The smoke test's command without an AWS account: its refusals, its costs, and its question before it begins."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from click.testing import CliRunner, Result
from rich.console import Console

from dev.smoke import smoke_command as command
from dev.smoke import smoke_report, timings
from dev.smoke.check_catalogue import CHECKS
from dev.smoke.check_results import CheckResult, Status
from dev.smoke.costs import bill, total
from dev.smoke.facts import FactAnswer, Verdict
from dev.smoke.stack_under_test import _OUTPUTS, StackUnderTest
from dev.smoke.state_facts import FACTS as STATE_FACTS

OUTPUTS = dict.fromkeys(_OUTPUTS, "x") | {"WorkflowArn": "arn:aws:states:eu-north-1:123456789012:stateMachine:w"}
MISSING = ClientError({"Error": {"Code": "ValidationError", "Message": "StackUnderTest with id x does not exist"}}, "D")
ROOT = Path(__file__).parents[2]
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
        return {"Environment": {"Variables": {"LOOK_GAP_SECONDS": "30"}}}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Runs the command on an account with these answers. Fails if a check begins."""

    def run(*options: str, answers: Answers | None = None) -> Result:
        client = answers or Answers()
        monkeypatch.setattr(
            command,
            "in_account",
            lambda name, _profile, _region: StackUnderTest(name, "eu-north-1", False, lambda _: client),
        )
        monkeypatch.setattr(command, "run_checks", lambda *_about: pytest.fail("it went to work"))
        return CliRunner().invoke(command.main, list(options))

    return run


def test_without_a_yes_it_prints_the_costs_and_spends_nothing(ran: Ran) -> None:
    result = ran("--stack", "mine")
    assert result.exit_code == 2
    assert "not confirmed: nothing was done" in result.output
    assert "account 123456789012, eu-north-1" in result.output
    for expected in ("Glue, 11 Python shell runs", "0.44", "list prices of us-east-1", "2 failed requests"):
        assert expected in result.output


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (Answers(outputs={"Url": "x"}), "is not one of Slotkeeper's"),
        (Answers(outputs={}), "is not one of Slotkeeper's"),
        (Answers(status="UPDATE_IN_PROGRESS"), "is UPDATE_IN_PROGRESS: wait until it is deployed"),
        (Answers(status="DELETE_COMPLETE"), "is DELETE_COMPLETE"),
    ],
)
def test_a_stack_of_another_template_or_not_ready_is_refused(ran: Ran, answers: Answers, said: str) -> None:
    result = ran("--stack", "mine", "--yes", answers=answers)
    assert (result.exit_code, said in result.output) == (2, True), result.output


def test_an_unknown_stack_is_refused(ran: Ran) -> None:
    result = ran("--stack", "other", "--yes")
    assert (result.exit_code, "there is no stack 'other' in eu-north-1" in result.output) == (2, True)


def test_without_a_region_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    session = SimpleNamespace(region_name=None)
    monkeypatch.setattr("dev.smoke.stack_under_test.boto3.Session", lambda **_named: session)
    result = CliRunner().invoke(command.main, ["--stack", "mine", "--yes"])
    assert (result.exit_code, "no region" in result.output) == (2, True)


def test_all_checks_cost_less_than_ten_cents() -> None:
    items = bill(check.spending(timings.AWS) for check in CHECKS)
    assert 0.005 < total(items) < 0.1
    assert items[0].dollars == max(item.dollars for item in items)  # Glue


def test_a_run_is_billed_for_a_minute_at_least() -> None:
    (glue, *_), (longer, *_) = ([*bill([check.spending(timings.AWS)])] for check in (CHECKS[2], CHECKS[5]))
    assert glue.dollars == pytest.approx(60 / 3600 / 16 * 0.44)
    assert longer.dollars > glue.dollars


def test_the_page_lists_every_check_and_the_costs() -> None:
    page = (ROOT / "dev" / "smoke" / "README.md").read_text()
    assert all(f"| `{check.name}` |" in page for check in CHECKS)
    assert f"costs about ${total(bill(check.spending(timings.AWS) for check in CHECKS)):.2f}\n" in page


def test_the_page_names_every_verdict() -> None:
    page = (ROOT / "dev" / "smoke" / "README.md").read_text()
    assert all(f"- {verdict}: " in page for verdict in Verdict)


def test_the_list_has_each_check_with_its_cost_and_each_fact_with_what_depends_on_it() -> None:
    output = io.StringIO()
    smoke_report.show_catalogue(Console(file=output, width=3000), CHECKS)
    text = output.getvalue()
    for check in CHECKS:
        assert f"{total(bill([check.spending(timings.AWS)])):.4f}" in text
        for fact in check.facts:
            assert all(part in text for part in (fact.name, fact.asks, fact.expects, fact.depends, fact.manually))


def test_a_different_answer_fails_the_command_and_states_what_it_means(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fact = STATE_FACTS[0]
    answers = [FactAnswer(fact.name, Verdict.DIFFERENT, {"error": "Another"}, fact.depends)]
    result = CheckResult("states", Status.FAILED, "1 different", 0.1, [], answers)
    client = Answers()
    stack = StackUnderTest("mine", "eu-north-1", False, lambda _: client)
    monkeypatch.setattr(command, "in_account", lambda *_about: stack)
    monkeypatch.setattr(command, "run_checks", lambda *_about: ("smoke-1", [result]))
    options = ["--stack", "mine", "--yes", "--only", "states", "--folder", str(tmp_path)]
    done = CliRunner().invoke(command.main, options)
    assert done.exit_code == 1, done.output
    text = " ".join(done.output.split())
    assert f"different states, {fact.name}" in text
    assert "It means: S3" in text
    assert "- **run-that-did-not-succeed: different.**" in (tmp_path / "report.md").read_text()
    assert json.loads((tmp_path / "report.json").read_text())["facts"]["different"] == 1


def test_it_reads_the_outputs_that_local_up_writes(tmp_path: Path) -> None:
    from dev.smoke.stack_under_test import embedded

    connection = {"endpoint": "http://127.0.0.1:1", "region": "us-east-1"}
    (tmp_path / "outputs.json").write_text(json.dumps(connection))
    stack = embedded(tmp_path / "outputs.json")
    assert (stack.local, stack.client("sqs").meta.endpoint_url) == (True, connection["endpoint"])
    assert stack.client("sqs") is stack.client("sqs")
