"""Bad messages are dead-lettered immediately with a reason, and delay no other message."""

from __future__ import annotations

import json

import pytest

from tests.e2e.deployed_stack import DeployedStack
from tests.support.waiting import wait_until

# A body with PROCESS for the process it is sent for, and what its reason must name.
BAD = {
    "not JSON": ("{", "not JSON"),
    "unknown field": ('{"process": "PROCESS", "priority": 1}', "priority"),
    "wrong type": ('{"process": "PROCESS", "arguments": {"--a": 1}}', "body.arguments.--a"),
    "process too long": (json.dumps({"process": "p" * 48}), "body.process"),
    "another process's group": ('{"process": "PROCESS-other"}', "MessageGroupId"),
    "an argument of Glue's": (
        '{"process": "PROCESS", "arguments": {"--extra-py-files": "s3://x"}}',
        "--extra-py-files",
    ),
    "our own marker": (
        '{"process": "PROCESS", "arguments": {"--slotkeeper-execution": "x"}}',
        "--slotkeeper-execution",
    ),
    "junk of the maximum size": ("x" * 66560, "not JSON"),
}


def test_f22_bad_messages_are_dead_lettered_with_a_reason_and_delay_no_other(stack: DeployedStack) -> None:
    process = stack.process(limit=1)
    before = stack.item(process)
    for n, (body, _) in enumerate(BAD.values()):
        stack.send_raw(body.replace("PROCESS", process), process, f"bad-{n}")
    good = stack.send(process, "good")
    stack.end(process, "good")
    stack.wait_for_status(good, "SUCCEEDED")
    wait_until(lambda: len(stack.dead_letters(process)) == len(BAD), "every bad message to be dead-lettered")
    reasons = [dead_letter["reason"] for dead_letter in stack.dead_letters(process)]
    assert [names in reason for (_, names), reason in zip(BAD.values(), reasons, strict=True)] == [True] * len(BAD)
    stack.wait_until_free(process)
    after = stack.item(process)
    assert (after.slot_limit, after.slots_in_use, after.holders) == (before.slot_limit, 0, {})
    assert [execution["name"] for execution in stack.executions(process)] == [good]


def test_f19_a_message_of_an_unknown_process_is_dead_lettered(stack: DeployedStack) -> None:
    stack.send("unknown", "r1")
    (dead_letter,) = wait_until(lambda: stack.dead_letters("unknown"), "the message of an unknown process")
    assert dead_letter["code"] == "UnknownProcess"
    assert "'unknown' does not exist" in dead_letter["reason"]


def test_a_message_above_the_queues_maximum_size_is_refused_to_its_sender(stack: DeployedStack) -> None:
    process = stack.process()
    with pytest.raises(stack.sqs.exceptions.ClientError, match="66560"):
        stack.send_raw("x" * 66561, process)
