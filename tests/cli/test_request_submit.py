"""`slotkeeper request submit`: sending, refusals before the first request is sent, and waiting."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from slotkeeper.slots.request import execution_name
from slotkeeper_cli.commands import submit
from slotkeeper_cli.commands.submit import MAX_CHECKED
from tests.cli.account_contents import job_run, run_before, waiting
from tests.cli.operator_account import Operator, StubbedCalls
from tests.support.module_time import replace_time


def _lines(request_ids: Iterable[str]) -> str:
    """A file of requests."""
    return "\n".join(json.dumps({"process": "sample", "request_id": one}) for one in request_ids)


def test_submit_sends_a_request_in_its_group(operator: Operator) -> None:
    command = ("request", "submit", "--process", "sample", "--request-id", "order-1", "--json")
    ended = operator.run(*command, "--arg", "--day=2026-11-21", "--arg", "mode2=a=b")

    assert ended.exit_code == 0
    name = execution_name("sample", "order-1", 1)
    (sent,) = ended.json["sent"]
    (message,) = waiting(operator, "RequestQueue")
    assert sent == {
        "request_id": "order-1",
        "process": "sample",
        "execution": name,
        "priority": "normal",
        "weight": None,
        "message_id": message["MessageId"],
    }
    assert json.loads(message["Body"]) == {
        "process": "sample",
        "arguments": {"--day": "2026-11-21", "--mode2": "a=b"},
        "request_id": "order-1",
        "attempt": 1,
    }
    assert message["Attributes"]["MessageGroupId"] == "sample"


def test_a_request_that_is_submitted_again_after_its_dead_letter_is_queued_again(operator: Operator) -> None:
    """SQS drops a message with a deduplication id of the last five minutes, moto only while the first one exists."""
    command = ("request", "submit", "--force", "--process", "later", "--request-id", "r1")
    assert operator.run(*command).exit_code == 0
    operator.processes.create("later", 1, "sample-job")
    assert operator.run(*command).exit_code == 0
    assert [json.loads(each["Body"])["request_id"] for each in waiting(operator, "RequestQueue")] == ["r1", "r1"]


def test_submit_sends_priority_and_weight_in_the_group_of_the_priority(operator: Operator) -> None:
    operator.processes.set_limit("sample", 10)
    lines = [
        {"process": "sample", "request_id": one, "priority": one, "weight": 2} for one in ("high", "normal", "low")
    ]
    stdin = "\n".join(map(json.dumps, lines))
    options = ("--process", "sample", "--request-id", "a", "--priority", "high", "--weight", "10")
    (sent,) = operator.run("request", "submit", *options, "--json").json["sent"]
    assert (sent["priority"], sent["weight"]) == ("high", 10)
    assert operator.run("request", "submit", "--file", "-", stdin=stdin).stderr == ""

    queued = {
        fields["request_id"]: (one, fields)
        for one in waiting(operator, "RequestQueue")
        if (fields := json.loads(one["Body"]))
    }
    groups = {name: message["Attributes"]["MessageGroupId"] for name, (message, _) in queued.items()}
    assert groups == {"a": "sample#high", "high": "sample#high", "normal": "sample", "low": "sample#low"}
    assert {(fields.get("priority"), fields["weight"]) for _, fields in queued.values()} == {
        ("high", 10),
        ("high", 2),
        (None, 2),
        ("low", 2),
    }


def test_submit_warns_of_a_weight_above_the_limit(operator: Operator) -> None:
    operator.processes.create("heavy", 4, "sample-job", default_weight=5)
    stated = operator.run("request", "submit", "--process", "sample", "--weight", "3").stderr
    assert "1 request of sample above the limit 1 (largest weight: 3)." in stated
    assert "slotkeeper process set-limit sample 3" in stated
    assert "above the limit 4 (largest weight: 5)" in operator.run("request", "submit", "--process", "heavy").stderr
    assert operator.run("request", "submit", "--process", "heavy", "--weight", "4").stderr == ""


def test_submit_gives_a_request_without_id_a_new_id(operator: Operator) -> None:
    (sent,) = operator.run("request", "submit", "--process", "sample", "--json").json["sent"]
    (message,) = waiting(operator, "RequestQueue")
    assert json.loads(message["Body"])["request_id"] == sent["request_id"]
    assert sent["execution"] == execution_name("sample", sent["request_id"], 1)


def test_submit_sends_a_file_in_order_in_batches_of_ten(operator: Operator, tmp_path: Path) -> None:
    batches: list[int] = []
    operator.sqs.meta.events.register_first(
        "provide-client-params.sqs.SendMessageBatch", note := lambda params, **_: batches.append(len(params["Entries"]))
    )
    file = tmp_path / "requests.jsonl"
    file.write_text(_lines(f"r{n}" for n in range(5)) + "\n\n" + _lines(f"r{n}" for n in range(5, 12)))

    sent = operator.run("request", "submit", "--file", str(file), "--json").json["sent"]

    operator.sqs.meta.events.unregister("provide-client-params.sqs.SendMessageBatch", note)
    assert batches == [10, 2]
    assert [one["request_id"] for one in sent] == [f"r{n}" for n in range(12)]
    assert [json.loads(one["Body"])["request_id"] for one in waiting(operator, "RequestQueue")] == [
        f"r{n}" for n in range(10)
    ]
    (line,) = operator.audited()
    assert (line["action"], line["requests"], line["processes"]) == ("request submit", 12, {"sample": 12})


def test_submit_reports_all_invalid_lines_and_sends_nothing(operator: Operator) -> None:
    lines = [
        '{"process": "sample", "request_id": "good"}',
        "not JSON",
        '{"process": "sample", "urgent": true}',
        "",
        '{"process": "sample", "request_id": "good"}',
        json.dumps({"process": "sample", "arguments": {"--text": "x" * 70_000}}),
        '{"process": "sample", "arguments": {"--extra-py-files": "s3://x"}}',
    ]

    ended = operator.run("request", "submit", "--file", "-", stdin="\n".join(lines))

    assert ended.exit_code == 2
    for text in (
        "line 2: body is not JSON",
        "line 3: body must not contain urgent",
        "line 5: repeats the process and request_id of line 1",
        "line 6: body has 70,",
        "line 7: body.arguments must not contain --extra-py-files",
    ):
        assert text in ended.stderr
    assert "\nline 1:" not in ended.stderr
    assert waiting(operator, "RequestQueue") == []
    assert operator.audited() == []


def test_submit_refuses_an_unknown_process_without_force(operator: Operator) -> None:
    ended = operator.run("request", "submit", "--process", "unknown")
    assert ended.exit_code == 4
    assert "there is no process 'unknown'. The processes are: sample" in ended.stderr
    assert "slotkeeper process add unknown --limit 1 --target JOB_OR_ARN" in ended.stderr
    assert waiting(operator, "RequestQueue") == []
    assert operator.run("request", "submit", "--process", "unknown", "--force").exit_code == 0
    assert len(waiting(operator, "RequestQueue")) == 1


def test_submit_warns_of_a_paused_process_and_of_a_cancelled_request(operator: Operator) -> None:
    operator.processes.pause("sample")
    operator.processes.cancellations.add("sample", execution_name("sample", "a", 1), 1_790_000_000.0)
    warned = operator.run("request", "submit", "--process", "sample", "--request-id", "a").stderr
    assert "sample is paused" in warned
    assert "request a of sample is cancelled" in warned


def test_submit_sends_the_requests_of_a_file_that_did_not_run_before(operator: Operator) -> None:
    operator.stop(operator.hold("a"))
    ended = operator.run("request", "submit", "--file", "-", "--json", stdin=_lines("ab"))
    assert [one["request_id"] for one in ended.json["sent"]] == ["b"]
    assert [(one["request_id"], one["status"]) for one in ended.json["ran_before"]] == [("a", "ABORTED")]
    assert ended.exit_code == 1
    assert "1 of 2 requests failed" in ended.stderr
    (line,) = operator.audited()
    assert (line["requests"], line["first"]) == (1, "b")


def test_submit_sends_no_request_of_a_file_with_an_id_of_another(operator: Operator) -> None:
    run_before(operator, "SUCCEEDED")
    ended = operator.run("request", "submit", "--file", "-", stdin=_lines(["b", "c", "a"]))
    assert ended.exit_code == 3
    assert "line 3: request a of sample (SUCCEEDED) differs in: arguments\n" in ended.stderr
    assert waiting(operator, "RequestQueue") == []
    assert operator.audited() == []


@pytest.mark.parametrize("option", [(), ("--wait", "--timeout", "0")])
def test_submit_states_that_a_long_file_was_not_checked(operator: Operator, option: tuple[str, ...]) -> None:
    """With --wait the executions are read, and one of another request is no success."""
    run_before(operator, "SUCCEEDED")
    lines = _lines(["a", *map(str, range(MAX_CHECKED))])
    ended = operator.run("request", "submit", "--file", "-", *option, "--json", stdin=lines)
    assert "it was not checked which of the 101 requests ran before, since they are more than 100" in ended.stderr
    assert len(ended.json["sent"]) == 101
    assert ended.exit_code == bool(option)
    assert ("1 of 101 requests did not run, since another request has used the id" in ended.stderr) == bool(option)


def test_submit_reports_what_was_sent_before_a_call_failed(operator: Operator) -> None:
    asked: list[int] = []

    def break_off(parameters: dict[str, Any]) -> dict[str, Any]:
        asked.append(len(parameters["Entries"]))
        if len(asked) == 2:
            return {"Error": {"Code": "AccessDenied", "Message": "no more"}}
        return {
            "Successful": [{"Id": one["Id"], "MessageId": "m", "MD5OfMessageBody": ""} for one in parameters["Entries"]]
        }

    with StubbedCalls("sqs", {"SendMessageBatch": break_off}):
        ended = operator.run("request", "submit", "--file", "-", "--json", stdin=_lines(f"r{n}" for n in range(25)))
    assert ended.exit_code == 1
    assert [one["request_id"] for one in ended.json["sent"]] == [f"r{n}" for n in range(10)]
    assert [one["error"][:12] for one in ended.json["refused"]] == ["may have bee"] * 10 + ["not sent"] * 5


def test_submit_refuses_an_empty_file(operator: Operator) -> None:
    assert operator.run("request", "submit", "--file", "-", stdin="\n").exit_code == 4


def test_submit_sends_refused_entries_of_a_batch_again(operator: Operator) -> None:
    asked: list[list[str]] = []
    sendings: list[str] = []

    def some(parameters: dict[str, Any]) -> dict[str, Any]:
        asked.append([json.loads(one["MessageBody"])["request_id"] for one in parameters["Entries"]])
        sendings.extend(one["MessageDeduplicationId"] for one in parameters["Entries"])
        refused = [one for one in parameters["Entries"] if len(asked) == 1 and one["Id"] == "1"]
        taken = [one for one in parameters["Entries"] if one not in refused]
        return {
            "Successful": [{"Id": one["Id"], "MessageId": "m", "MD5OfMessageBody": ""} for one in taken],
            "Failed": [{"Id": one["Id"], "Code": "Throttled", "SenderFault": False} for one in refused],
        }

    with StubbedCalls("sqs", {"SendMessageBatch": some}):
        ended = operator.run("request", "submit", "--file", "-", "--json", stdin=_lines("abc"))
    assert asked == [["a", "b", "c"], ["b"]]
    assert len(set(sendings)) == 3
    assert sendings[3] == sendings[1]  # SQS may have accepted it although it reported a failure
    assert "SQS refused 1 of 3 requests (Throttled: )" in ended.stderr
    assert ended.exit_code == 0
    assert [one["request_id"] for one in ended.json["sent"]] == ["a", "b", "c"]


@pytest.mark.parametrize(("sender_fault", "tries"), [(True, 1), (False, 5)])
def test_submit_fails_if_sqs_keeps_refusing_a_request(operator: Operator, sender_fault: bool, tries: int) -> None:
    asked: list[int] = []

    def none(parameters: dict[str, Any]) -> dict[str, Any]:
        asked.append(len(parameters["Entries"]))
        return {"Failed": [{"Id": "0", "Code": "InvalidMessageContents", "SenderFault": sender_fault, "Message": "no"}]}

    with StubbedCalls("sqs", {"SendMessageBatch": none}):
        ended = operator.run("request", "submit", "--process", "sample", "--request-id", "a", "--json")

    assert ended.exit_code == 1
    assert asked == [1] * tries
    (refused,) = ended.json["refused"]
    assert (refused["request_id"], refused["error"]) == ("a", "InvalidMessageContents: no")


def _ending(operator: Operator, monkeypatch: pytest.MonkeyPatch, ends: dict[str, str]) -> StubbedCalls:
    """Between two polls one more execution ends: name -> SUCCEEDED, or the error."""
    left = list(ends.items())
    ended: dict[str, str] = {}
    inputs = {
        execution_name("sample", one, attempt): json.dumps(
            {"process": "sample", "arguments": {}, "request_id": one, "attempt": attempt}
        )
        for one in "ab"
        for attempt in (1, 2)
    }

    def describe(parameters: dict[str, Any]) -> dict[str, Any]:
        name = parameters["executionArn"].rpartition(":")[2]
        if name not in ended:
            return {"Error": {"Code": "ExecutionDoesNotExist", "Message": "not yet"}}
        cause = f"States.TaskFailed: {job_run('no such month')}"
        failed = {"status": "FAILED", "error": ended[name], "cause": cause}
        ending = {"status": "SUCCEEDED"} if ended[name] == "SUCCEEDED" else failed
        moment = datetime.fromtimestamp(0, UTC)
        return {
            "executionArn": parameters["executionArn"],
            "name": name,
            "input": inputs[name],
            "startDate": moment,
            "stopDate": moment,
            **ending,
        }

    def end_one(_: float) -> None:
        ended.update([left.pop(0)] if left else [])

    replace_time(monkeypatch, submit, sleep=end_one)
    return StubbedCalls("stepfunctions", {"DescribeExecution": describe})


def test_submit_waits_until_all_have_succeeded_and_for_the_next_attempt_of_a_returned_request(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other, second = (execution_name("sample", *one) for one in (("a", 1), ("b", 1), ("a", 2)))
    polls = _ending(operator, monkeypatch, {first: "RequestReturned", other: "SUCCEEDED", second: "SUCCEEDED"})
    with polls:
        ended = operator.run("request", "submit", "--file", "-", "--wait", "--json", stdin=_lines("ab"))
    assert ended.exit_code == 0
    assert [one["status"] for one in ended.json["sent"]] == ["SUCCEEDED", "SUCCEEDED"]


def test_submit_fails_if_an_execution_fails(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [execution_name("sample", one, 1) for one in "ab"]
    polls = _ending(operator, monkeypatch, dict.fromkeys(names, "RequestFailed"))
    with polls:
        ended = operator.run("request", "submit", "--process", "sample", "--request-id", "a", "--wait", "--json")
    assert ended.exit_code == 1
    assert ended.json["sent"][0]["error"] == "RequestFailed"
    assert "1 of 1 request failed" in ended.stderr
    assert ended.json["sent"][0]["reason"] == "no such month"
    with polls:
        text = operator.run("request", "submit", "--process", "sample", "--request-id", "b", "--wait").stdout
    assert text == f"sent: b  {names[1]}  FAILED: no such month\n"
