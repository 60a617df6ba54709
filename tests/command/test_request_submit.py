"""`slotkeeper request submit`: sending, refusals before the first request is sent, and waiting."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from slotkeeper.slots.request import Delivery, execution_name
from slotkeeper_cli import submission
from slotkeeper_cli.commands import submit
from tests.command.account_contents import fail, job_run, succeed, waiting
from tests.command.operator_account import NOW, Ended, Operator, StubbedCalls
from tests.module_time import replace_time

FILE = ("request", "submit", "--file", "-")
ONE = ("request", "submit", "--process", "sample", "--request-id", "a")


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_time(monkeypatch, submission, sleep=lambda _: None)


def _lines(request_ids: Iterable[str]) -> str:
    """A file of requests."""
    return "\n".join(json.dumps({"process": "sample", "request_id": one}) for one in request_ids)


def _ids(ended: Ended, part: str = "sent") -> list[str]:
    return [one["request_id"] for one in ended.json[part]]


def _queued(operator: Operator) -> list[dict[str, Any]]:
    return [json.loads(one["Body"]) for one in waiting(operator, "RequestQueue")]


def test_submit_sends_a_request(operator: Operator) -> None:
    command = ("request", "submit", "--process", "sample", "--request-id", "order-1", "--json")
    ended = operator.run(*command, "--arg", "--day=2026-11-21", "--arg", "mode2=a=b")

    (message,) = waiting(operator, "RequestQueue")
    assert ended.json["sent"] == [
        {
            "request_id": "order-1",
            "process": "sample",
            "execution": execution_name("sample", "order-1", 1),
            "priority": "normal",
            "weight": None,
            "key": None,
            "message_id": message["MessageId"],
        }
    ]
    assert json.loads(message["Body"]) == {
        "process": "sample",
        "arguments": {"--day": "2026-11-21", "--mode2": "a=b"},
        "request_id": "order-1",
        "attempt": 1,
    }
    assert message["Attributes"]["MessageGroupId"] == "sample", "so that the requests of a file keep their order"


def test_a_request_without_an_id_receives_one_and_priority_and_weight_are_sent(operator: Operator) -> None:
    operator.processes.set_limit("sample", 10)
    options = ("--priority", "high", "--weight", "10", "--key", "acme")
    (sent,) = operator.run(*ONE[:4], *options, "--json").json["sent"]
    (fields,) = _queued(operator)
    assert (fields["key"], sent["key"]) == ("acme", "acme")
    assert (fields["request_id"], fields["priority"], fields["weight"]) == (sent["request_id"], "high", 10)
    assert sent["execution"] == execution_name("sample", sent["request_id"], 1)
    of_each = {"process": "sample", "weight": 2, "key": "a\u202e"}
    lines = [{**of_each, "request_id": one, "priority": one} for one in ("normal", "low")]
    assert operator.run(*FILE, stdin="\n".join(map(json.dumps, lines))).stderr == ""
    found = [(one.get("priority"), one["weight"], one["key"]) for one in _queued(operator)[1:]]
    assert found == [(None, 2, "a\u202e"), ("low", 2, "a\u202e")]


def test_a_request_without_a_row_that_is_submitted_again_is_queued_again(operator: Operator) -> None:
    """SQS drops a message with a deduplication id of the last five minutes."""
    assert [operator.run(*ONE).exit_code for _ in range(2)] == [0, 0]
    assert [fields["request_id"] for fields in _queued(operator)] == ["a", "a"]


def test_submit_sends_a_file_in_order_in_batches_of_ten(operator: Operator, tmp_path: Path) -> None:
    batches: list[int] = []
    operator.sqs.meta.events.register_first(
        "provide-client-params.sqs.SendMessageBatch", note := lambda params, **_: batches.append(len(params["Entries"]))
    )
    file = tmp_path / "requests.jsonl"
    file.write_text(_lines(f"r{n}" for n in range(5)) + "\n\n" + _lines(f"r{n}" for n in range(5, 12)))
    ended = operator.run("request", "submit", "--file", str(file), "--json")
    operator.sqs.meta.events.unregister("provide-client-params.sqs.SendMessageBatch", note)

    assert batches == [10, 2]
    assert _ids(ended) == [f"r{n}" for n in range(12)]
    assert [fields["request_id"] for fields in _queued(operator)] == [f"r{n}" for n in range(10)]
    (line,) = operator.audited()
    assert (line["action"], line["requests"], line["processes"]) == ("request submit", 12, {"sample": 12})


# Refused, or warned of ------------------------------------------------------------------------------------------------


def test_submit_reports_all_invalid_lines_and_sends_nothing(operator: Operator) -> None:
    lines = [
        '{"process": "sample", "request_id": "good"}',
        "not JSON",
        '{"process": "sample", "urgent": true}',
        "",
        '{"process": "sample", "request_id": "good"}',
        json.dumps({"process": "sample", "arguments": {"--text": "x" * 70_000}}),
        '{"process": "sample", "arguments": {"--extra-py-files": "s3://x"}}',
        *(json.dumps({"process": "sample", "key": key}) for key in ("a\n", "\ud800", "é" * 33)),
    ]
    before = operator.contents()
    ended = operator.run(*FILE, stdin="\n".join(lines))
    assert (ended.exit_code, operator.contents(), operator.audited()) == (2, before, [])
    for text in (
        "line 2: body is not JSON",
        "line 3: body must not contain urgent",
        "line 5: repeats the process and request_id of line 1",
        "line 6: body has 70,",
        "line 7: body.arguments must not contain --extra-py-files",
        *("line 8: body.key must contain no control", "line 9: body", "line 10: body.key must have at most 64 bytes"),
    ):
        assert text in ended.stderr
    assert "\nline 1:" not in ended.stderr


def test_submit_sends_the_requests_of_a_file_that_were_not_sent_before(operator: Operator) -> None:
    fail(operator)
    ended = operator.run(*FILE, "--json", stdin=_lines("ab"))
    assert (_ids(ended), _ids(ended, "sent_before"), ended.exit_code) == (["b"], ["a"], 1)
    assert ended.json["sent_before"][0]["state"] == "failed"
    assert "1 of 2 requests failed" in ended.stderr
    (line,) = operator.audited()
    assert (line["requests"], line["first"]) == (1, "b")


def test_submit_sends_no_request_of_a_long_file_with_an_id_of_another(operator: Operator) -> None:
    """More than a call of DynamoDB reads."""
    succeed(operator, arguments={"--day": "1"})
    before = operator.contents()
    ended = operator.run(*FILE, stdin=_lines([*map(str, range(120)), "a"]))
    assert (ended.exit_code, operator.contents(), operator.audited()) == (3, before, [])
    assert "line 121: request a of sample (succeeded)\n" in ended.stderr


# What SQS refuses -----------------------------------------------------------------------------------------------------


def _answering(answer: Callable[[int, list[dict[str, Any]]], dict[str, Any]]) -> tuple[StubbedCalls, list[Any]]:
    """Stub SendMessageBatch: `answer` gets the number of the call and its entries."""
    asked: list[Any] = []

    def call(parameters: dict[str, Any]) -> dict[str, Any]:
        asked.append(parameters["Entries"])
        return answer(len(asked), parameters["Entries"])

    return StubbedCalls("sqs", {"SendMessageBatch": call}), asked


def _taken(entries: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {"Successful": [{"Id": one["Id"], "MessageId": "m", "MD5OfMessageBody": ""} for one in entries]}


def test_submit_reports_what_was_sent_before_a_call_failed(operator: Operator) -> None:
    denied = {"Error": {"Code": "AccessDenied", "Message": "no more"}}
    stub, _ = _answering(lambda number, entries: denied if number == 2 else _taken(entries))
    with stub:
        ended = operator.run(*FILE, "--json", stdin=_lines(f"r{n}" for n in range(25)))
    assert (ended.exit_code, _ids(ended)) == (1, [f"r{n}" for n in range(10)])
    errors = [one["error"] for one in ended.json["refused"]]
    assert [error[:12] for error in errors] == ["may have bee"] * 10 + ["not sent"] * 5
    assert "SendMessageBatch failed with AccessDenied: no more" in errors[0]


def test_submit_sends_refused_entries_of_a_batch_again(operator: Operator) -> None:
    def some(number: int, entries: list[dict[str, Any]]) -> dict[str, Any]:
        refused = [one for one in entries if number == 1 and one["Id"] == "1"]
        failed = [{"Id": one["Id"], "Code": "Throttled", "SenderFault": False} for one in refused]
        return _taken(one for one in entries if one not in refused) | {"Failed": failed}

    stub, asked = _answering(some)
    with stub:
        ended = operator.run(*FILE, "--json", stdin=_lines("abc"))
    (*_, second, _), (again,) = asked
    assert json.loads(again["MessageBody"])["request_id"] == "b"
    assert again == second, "SQS may have accepted it although it reported a failure"
    assert len({one["MessageDeduplicationId"] for one in asked[0]}) == 3
    assert "SQS refused 1 of 3 requests (Throttled: )" in ended.stderr
    assert (ended.exit_code, _ids(ended)) == (0, ["a", "b", "c"])


@pytest.mark.parametrize(("sender_fault", "tries"), [(True, 1), (False, 5)])
def test_submit_fails_if_sqs_keeps_refusing_a_request(operator: Operator, sender_fault: bool, tries: int) -> None:
    failed = {"Id": "0", "Code": "InvalidMessageContents", "SenderFault": sender_fault, "Message": "no"}
    stub, asked = _answering(lambda *_: {"Failed": [failed]})
    with stub:
        ended = operator.run(*ONE, "--json")
    (refused,) = ended.json["refused"]
    assert (ended.exit_code, len(asked)) == (1, tries)
    assert (refused["request_id"], refused["error"]) == ("a", "InvalidMessageContents: no")


# Waiting --------------------------------------------------------------------------------------------------------------


def _receive(operator: Operator) -> None:
    """Accept the messages of RequestQueue, as the starter does."""
    url = operator.outputs["RequestQueueUrl"]
    answer = operator.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])
    for number, message in enumerate(answer.get("Messages", [])):
        operator.accept(Delivery(message["MessageId"], message["Body"], "sample", str(number), NOW))
        operator.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def _finish(operator: Operator, name: str, *, fails: bool = False) -> None:
    operator.start(name)
    if fails:
        operator.fail(name, "Glue.Failed", job_run("no such month"))
    else:
        operator.succeed(name)
    operator.release(name)


def _while_it_waits(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> None:
    """Between two polls, one more step happens."""
    left = list(steps)
    replace_time(monkeypatch, submit, sleep=lambda _: left and left.pop(0)())


def test_submit_waits_until_all_have_succeeded_and_for_the_next_attempt_of_a_returned_request(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other, second = (execution_name("sample", *one) for one in (("a", 1), ("b", 1), ("a", 2)))
    _while_it_waits(
        monkeypatch,
        lambda: _receive(operator),
        lambda: operator.start(first, confirmed=False),
        lambda: (operator.release(first), operator.give_back(first)),
        lambda: _finish(operator, other),
        lambda: _finish(operator, second),
    )
    ended = operator.run(*FILE, "--wait", "--json", stdin=_lines("ab"))
    assert ended.exit_code == 0
    states = [(one["state"], one["execution"]) for one in ended.json["sent"]]
    assert states == [("succeeded", second), ("succeeded", other)]


def test_the_command_for_what_has_failed_is_about_one_process(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.processes.create("other", 1, "sample-job")

    def fail() -> None:
        for process in ("sample", "other"):
            name = execution_name(process, f"of-{process}", 1)
            operator.start(name, process)
            operator.fail(name, "Glue.Failed", "no such month", process)

    _while_it_waits(monkeypatch, lambda: _receive(operator), fail)
    lines = "\n".join(json.dumps({"process": one, "request_id": f"of-{one}"}) for one in ("sample", "other"))
    ended = operator.run(*FILE, "--wait", stdin=lines)
    command = "slotkeeper failed redrive of-sample --process sample"
    assert f"2 of 2 requests failed. Queue the first again with: {command}\n" in ended.stderr


def test_submit_fails_if_a_request_fails(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    name = execution_name("sample", "a", 1)
    _while_it_waits(monkeypatch, lambda: _receive(operator), lambda: _finish(operator, name, fails=True))
    ended = operator.run(*ONE, "--wait")
    assert (ended.exit_code, ended.stdout) == (1, f"sent: a  {name}  failed: no such month\n")
    assert "1 of 1 request failed. Queue them again with: slotkeeper failed redrive a --process sample" in ended.stderr


@pytest.mark.parametrize(
    ("end", "code", "exit_code", "says"),
    [
        ("SKIPPED", "Skipped", 0, ""),
        ("TOO_LATE", "TooLate", 1, "1 of 1 request had not started when start_before passed"),
        ("CANCELLED", "Cancelled", 1, "1 of 1 request did not run (cancelled)"),
        ("REJECTED", "LeasesOnly", 1, "1 of 1 request did not run (rejected)"),
        ("REJECTED", "RequestIdReused", 1, "1 of 1 request did not run, since another request has used the id"),
    ],
)
def test_submit_waits_until_a_request_has_ended_without_a_start(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, end: str, code: str, exit_code: int, says: str
) -> None:
    """The same id has ended without a start before, so that what was sent now is its second attempt."""
    operator.leave(operator.wait("a", arguments={}), "CANCELLED", "Cancelled", "before")
    second = execution_name("sample", "a", 2)
    _while_it_waits(monkeypatch, lambda: _receive(operator), lambda: operator.leave(second, end, code, "for a reason"))
    ended = operator.run(*ONE, "--wait", "--json")
    (sent,) = ended.json["sent"]
    assert (ended.exit_code, sent["state"], sent["code"], sent["execution"], sent["reason"]) == (
        *(exit_code, end.lower().replace("_", " "), code, second),
        "for a reason",
    )
    assert says in ended.stderr
