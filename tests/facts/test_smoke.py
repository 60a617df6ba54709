"""The smoke test without an AWS account: its verdicts, its clean-up, and its command."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from click.testing import CliRunner, Result

from tests.facts import __main__ as command
from tests.facts import smoke
from tests.facts.account import Account, Timings
from tests.facts.facts import ASSUMED, DEPLOYED, Fact, Failed, NotShown
from tests.facts.request_facts import _collect, _is_error_logged
from tests.facts.requests import Requests
from tests.facts.simulated import SimulatedAccount
from tests.facts.smoke import FACTS, Verdict, judged
from tests.facts.smoke_report import LONGEST_TEXT, mask
from tests.facts.stack import _OUTPUTS, StackUnderTest

DENIED = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "BatchStopJobRun")
THROTTLED = ClientError({"Error": {"Code": "Throttling", "Message": "no"}}, "CreateRole")
REFUSED = ClientError({"Error": {"Code": "ExecutionNotRedrivable", "Message": "no"}}, "RedriveExecution")
UNREACHABLE = EndpointConnectionError(endpoint_url="https://states")
OUTPUTS = dict.fromkeys(_OUTPUTS, "x") | {"WorkflowArn": "arn:aws:states:eu-north-1:123456789012:stateMachine:w"}
NO_WAITS = Timings(start=0.2, finish=0.2, poll=0.01)

# ------------------------------------------------------------------------------------------------------------ verdicts


def _verdict(answer: Any) -> Verdict:
    """Of a row with this answer or error."""

    def ask(_account: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    agrees: Callable[[Any], bool] = lambda given: given["it"] == "yes"  # noqa: E731
    fact = Fact("It is.", ASSUMED, agrees, ask, lambda account: account, DEPLOYED, "group")
    return judged(fact, SimulatedAccount()).verdict


def test_an_answer_is_as_expected_or_different_and_one_of_another_form_is_different() -> None:
    assert _verdict({"it": "yes"}) is Verdict.AS_EXPECTED
    assert [_verdict({"it": "no"}), _verdict({}), _verdict("it")] == [Verdict.DIFFERENT] * 3


@pytest.mark.parametrize("error", [DENIED, THROTTLED, UNREACHABLE, NotShown("no worker")])
def test_a_call_that_was_not_made_shows_nothing(error: Exception) -> None:
    assert _verdict(error) is Verdict.NOT_SHOWN


@pytest.mark.parametrize("error", [REFUSED, Failed("too late"), KeyError("Attributes")])
def test_a_refusal_or_an_answer_in_time_that_the_row_does_not_expect_is_different(error: Exception) -> None:
    assert _verdict(error) is Verdict.DIFFERENT


def _log(**details: str) -> Any:
    """The requests of a stack whose workflow's log has a failed task with these details."""
    logs = Mock()
    event = {"message": json.dumps({"type": "TaskFailed", "details": details})}
    logs.get_paginator.return_value.paginate.return_value = [{"events": []}, {"events": [event]}]
    group = "arn:aws:logs:us-east-1:123456789012:log-group:/aws/vendedlogs/states/slotkeeper:*"
    machine = {"loggingConfiguration": {"destinations": [{"cloudWatchLogsLogGroup": {"logGroupArn": group}}]}}
    aws = SimpleNamespace(client=lambda _: logs, wait=lambda look, _what: look())
    return SimpleNamespace(aws=aws, stack=SimpleNamespace(machine=machine))


def test_the_workflows_log_must_name_the_error_that_an_alarm_counts() -> None:
    assert _is_error_logged(_log(error="States.TaskFailed"), "arn")
    assert not _is_error_logged(_log(resource="startJobRun.sync"), "arn")


# ------------------------------------------------------------------------------------------------------------ clean-up


def _denied(**_asked: Any) -> Any:
    raise DENIED


def test_what_was_created_is_removed_the_newest_first_despite_failures() -> None:
    removed: list[str] = []
    client = SimpleNamespace(
        create_queue=lambda QueueName: {"QueueUrl": f"https://{QueueName}"},
        delete_queue=lambda **asked: removed.append(asked["QueueUrl"]),
        create_job=lambda **_: {},
        delete_job=_denied,
        create_role=_denied,
        put_rule=lambda **_: {},
        delete_rule=lambda **asked: removed.append(asked["Name"]),
    )
    account = Account(lambda _service: client)
    account.client("sqs").create_queue(QueueName="q")
    account.client("glue").create_job(Name="j")
    with pytest.raises(ClientError):
        account.client("iam").create_role(RoleName="never created")
    account.client("events").put_rule(Name="r")
    (left,) = account.clean_up()
    assert left.startswith("delete_job {'JobName': 'j'}: An error occurred (AccessDeniedException)")
    assert removed == ["r", "https://q"]
    assert account.clean_up() == []


@pytest.fixture
def removed() -> list[str]:
    """The processes whose items were deleted."""
    return []


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch, removed: list[str]) -> Requests:
    """Of a check with one process, an execution that has ended, and its Glue run that lives."""

    def delete_item(Key: Any, **_asked: Any) -> None:
        removed.append(Key["process_name"]["S"])

    nothing = SimpleNamespace(paginate=lambda **_: [{"Items": []}])
    services = {
        "dynamodb": SimpleNamespace(delete_item=delete_item, get_paginator=lambda _: nothing, put_item=lambda **_: {}),
        "stepfunctions": SimpleNamespace(describe_execution=lambda **_: {"status": "FAILED"}),
        "glue": SimpleNamespace(batch_stop_job_run=lambda **_: None),
        "s3": SimpleNamespace(put_object=lambda **_: None, get_paginator=lambda _: nothing),
    }
    stack = StackUnderTest("mine", "us-east-1", False, services.__getitem__)
    vars(stack).update(outputs=OUTPUTS, sample_job="job")
    made = Requests(Account(services.__getitem__, "smoke-1", timings=NO_WAITS, stack=stack))
    made.process()
    made.executions.append(made.arn("x"))
    run = {"Id": "jr_1", "JobRunState": "RUNNING"}
    monkeypatch.setattr(Requests, "glue_run", lambda self, _name: run if self.job else None)
    return made


@pytest.mark.parametrize(
    ("service", "answers", "reported"),
    [
        ("glue", {"batch_stop_job_run": _denied}, "Glue runs: An error occurred (AccessDeniedException)"),
        ("glue", {}, "Glue runs: waited 0 s for them to end"),
        (
            "stepfunctions",
            {"describe_execution": lambda **_: {"status": "RUNNING"}, "stop_execution": _denied},
            "executions: An error occurred (AccessDeniedException)",
        ),
    ],
)
def test_what_cannot_be_ended_is_reported_and_keeps_its_process(
    requests: Requests, removed: list[str], service: str, answers: dict[str, Any], reported: str
) -> None:
    vars(requests.stack.client(service)).update(answers)
    left = requests.aws.clean_up()
    assert left[0].startswith(reported)
    assert "slotkeeper process remove smoke-1-" in left[-1]
    assert removed == []


def test_the_process_of_an_execution_that_closes_before_it_is_stopped_is_removed(
    requests: Requests, removed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Requests, "glue_run", lambda _self, _name: None)
    statuses: Iterator[str] = chain(["RUNNING"], repeat("SUCCEEDED"))
    closing = {"describe_execution": lambda **_: {"status": next(statuses)}, "stop_execution": _denied}
    vars(requests.stack.client("stepfunctions")).update(closing)
    assert requests.aws.clean_up() == []
    assert len(removed) == 1


def test_a_check_without_a_process_is_cleaned_up_in_a_stack_without_the_sample_job(requests: Requests) -> None:
    requests._created.clear()
    vars(requests.stack)["sample_job"] = None
    assert requests.aws.clean_up() == []


def test_messages_of_others_stay_and_its_own_are_received() -> None:
    requests: Any = SimpleNamespace(aws=SimulatedAccount())
    sqs = requests.aws.client("sqs")
    url = sqs.create_queue(QueueName="failed")["QueueUrl"]
    for body in ("theirs", '{"smoke": "smoke-1-due"}', "theirs too", '{"smoke": "smoke-2-due"}'):
        sqs.send_message(QueueUrl=url, MessageBody=body)
    assert [_collect(requests, url, "smoke-1-due") for _ in range(2)] == [1, 0]
    left = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [message["Body"] for message in left] == ["theirs", "theirs too", '{"smoke": "smoke-2-due"}']


# ------------------------------------------------------------------------------------------------------------- command

MISSING = ClientError({"Error": {"Code": "ValidationError", "Message": "Stack with id x does not exist"}}, "D")
Ran = Callable[..., Result]


def _answers(status: str = "UPDATE_COMPLETE", outputs: dict[str, str] = OUTPUTS) -> Any:
    """A client of any service that answers only the calls before the command's question."""
    listed = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]
    stacks = {"mine": {"Stacks": [{"StackStatus": status, "Outputs": listed}]}}

    def describe_stacks(StackName: str) -> Any:
        if StackName not in stacks:
            raise MISSING
        return stacks[StackName]

    return SimpleNamespace(
        describe_stacks=describe_stacks,
        describe_stack_resource=lambda **_: {"StackResourceDetail": {"PhysicalResourceId": "job"}},
        describe_state_machine=lambda **_: {"definition": "{}", "roleArn": "r"},
        get_function_configuration=lambda **_: {"Environment": {"Variables": {"CHECK_GAP_SECONDS": "30"}}},
    )


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Runs the command on an account. Without `results`, it fails if a row begins."""

    def run(*options: str, answers: Any = None, results: list[smoke.Result] | None = None) -> Result:
        client = answers or _answers()
        monkeypatch.setattr(
            command,
            "in_account",
            lambda name, _profile, _region: StackUnderTest(name, "eu-north-1", False, lambda _: client),
        )
        answered: Any = ("smoke-1", results, [])
        monkeypatch.setattr(smoke, "run", lambda *_about: answered if results else pytest.fail("it went to work"))
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
        ("other", _answers(), "there is no stack 'other' in eu-north-1"),
        ("mine", _answers(outputs={"Url": "x"}), "is not one of Slotkeeper's"),
        ("mine", _answers(status="UPDATE_IN_PROGRESS"), "is UPDATE_IN_PROGRESS: wait until it is deployed"),
    ],
)
def test_a_stack_that_is_missing_foreign_or_not_ready_is_refused(ran: Ran, name: str, answers: Any, said: str) -> None:
    result = ran("--stack", name, "--yes", answers=answers)
    assert (result.exit_code, said in result.output) == (2, True), result.output


def test_rows_are_chosen_by_their_names_and_groups_and_listed_with_what_depends_on_them(ran: Ran) -> None:
    listed = ran("--list", "--only", "ring,glue").output
    chosen = [fact for fact in FACTS if fact.name == "ring" or fact.group == "glue"]
    texts = [text for fact in chosen for text in (fact.name, fact.statement, fact.source, fact.depends)]
    assert [text for text in texts if text not in listed] == []
    assert "delayed_message" not in listed
    unknown = ran("--list", "--only", "rings")
    assert (unknown.exit_code, "there is no group or row rings" in unknown.output) == (2, True)


def test_the_page_has_every_group_and_every_verdict() -> None:
    page = Path(smoke.__file__).with_name("README.md").read_text()
    assert [each for each in {*(fact.group for fact in FACTS), *Verdict} if each not in page] == []


@pytest.mark.parametrize(
    ("verdict", "left", "code"),
    [
        (Verdict.AS_EXPECTED, [], 0),
        (Verdict.NOT_SHOWN, [], 0),
        (Verdict.DIFFERENT, [], 1),
        (Verdict.AS_EXPECTED, ["process smoke-1-groups-a: denied"], 1),
    ],
)
def test_a_different_answer_or_a_remaining_resource_fails_the_command(
    ran: Ran, tmp_path: Path, verdict: Verdict, left: list[str], code: int
) -> None:
    results = [smoke.Result(FACTS[0], verdict, 20.5 if verdict is Verdict.DIFFERENT else None, FACTS[0].depends, left)]
    done = ran("--stack", "mine", "--yes", "--folder", str(tmp_path), results=results)
    assert done.exit_code == code, done.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["ok"], report["verdicts"][verdict]) == (code == 0, 1)
    text = " ".join(done.output.split())
    assert [each for each in (str(verdict), *left) if each not in text] == []
    assert ("AWS answered 20.5. It means: S6" in text) == (verdict is Verdict.DIFFERENT)


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
