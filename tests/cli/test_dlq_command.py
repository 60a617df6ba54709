"""`slotkeeper dlq list`, `show` and `discard`."""

from __future__ import annotations

import json

import pytest

from slotkeeper_cli.formatting import local_time
from tests.cli.account_contents import give_up, move_by_sqs, only_id, send_dead_letter, waiting
from tests.cli.operator_account import Operator


def test_list_shows_all_queues_with_their_codes(operator: Operator) -> None:
    send_dead_letter(operator, "not JSON " + "x" * 300)
    give_up(operator)

    queues = {one["queue"]: one for one in operator.run("dlq", "list", "--json").json["queues"]}

    assert {name: (one["messages"], one["codes"]) for name, one in queues.items()} == {
        "request": (1, {"InvalidRequest": 1}),
        "work": (1, {"AttemptsExhausted": 1}),
        "schedule": (0, {}),
    }
    (dead_letter,) = queues["work"]["dead_letters"]
    assert (dead_letter["request_id"], dead_letter["attempt"]) == ("w", 2)
    shown = operator.run("dlq", "list").stdout.splitlines()
    first = shown.index("RequestDeadLetterQueue (request): 1  (1 InvalidRequest)")
    assert shown[first + 1] == "  m-1 (attempt 1)  InvalidRequest: because of InvalidRequest"
    assert shown[first + 2].endswith(f"  message {only_id(operator, 'RequestDeadLetterQueue')}")


def test_list_and_show_leave_every_message_visible(operator: Operator) -> None:
    send_dead_letter(operator)
    operator.run("dlq", "list")
    operator.run("dlq", "show", "request")
    assert len(waiting(operator, "RequestDeadLetterQueue")) == 1


def test_no_command_receives_from_request_queue_or_work_queue(operator: Operator) -> None:
    """What a command receives, the function does not."""
    asked: list[str] = []
    event = "provide-client-params.sqs.ReceiveMessage"
    operator.sqs.meta.events.register(event, note := lambda params, **_: asked.append(params["QueueUrl"]))
    for command in (("dlq", "list"), ("request", "show", "a"), ("dlq", "redrive", "request", "--all", "--yes")):
        operator.run(*command)
    operator.sqs.meta.events.unregister(event, note)
    assert asked
    assert not {operator.outputs["RequestQueueUrl"], operator.outputs["WorkQueueUrl"]} & set(asked)


def test_show_prints_body_and_attributes_and_times_in_words(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    send_dead_letter(operator, '{"process": "sample", "urgent": true}')
    message_id = only_id(operator, "RequestDeadLetterQueue")
    (dead_letter,) = operator.run("dlq", "show", "request", "--id", message_id, "--json").json["dead_letters"]
    assert dead_letter["body"] == '{"process": "sample", "urgent": true}'
    assert dead_letter["attributes"]["source_message_id"] == "m-1"
    assert dead_letter["request_id"] == "m-1"
    shown = operator.run("dlq", "show", "request").stdout
    assert "because of InvalidRequest" in shown
    assert f"  sent at: {local_time(1_790_000_001)}\n" in shown


@pytest.mark.parametrize("name", ["show", "redrive", "discard"])
def test_an_unknown_id_changes_nothing(operator: Operator, name: str) -> None:
    move_by_sqs(operator, '{"process": "sample", "request_id": "b"}')
    ended = operator.run("dlq", name, "request", "--id", "b", "--id", "other", "--yes")
    assert ended.exit_code == 4
    assert "has no message with id other. List them with: slotkeeper dlq list request" in ended.stderr
    assert len(waiting(operator, "RequestDeadLetterQueue")) == 1


def test_discard_deletes_the_messages_of_a_request_and_audits_their_bodies(operator: Operator) -> None:
    for fields in ('"request_id": "a"', '"request_id": "a", "weight": 2', '"request_id": "b"'):
        move_by_sqs(operator, f'{{"process": "sample", {fields}}}')
    asked = operator.asks("dlq", "discard", "request", "--id", "a")
    assert "Delete 2 messages (a (sample, attempt 1), a (sample, attempt 1)) of RequestDeadLetterQueue" in asked
    assert operator.run("dlq", "discard", "request", "--id", "a", "--yes").exit_code == 0
    (left,) = waiting(operator, "RequestDeadLetterQueue")
    assert json.loads(left["Body"])["request_id"] == "b"
    assert [line["request_id"] for line in operator.audited()] == ["a", "a"]
    assert [json.loads(line["body"]).get("weight") for line in operator.audited()] == [None, 2]
