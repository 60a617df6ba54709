"""What needs attention: each trouble has the right reason and the command that fixes or explains it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from slotkeeper.retry.downstream import rules
from slotkeeper.retry.downstream.downstreams import DownstreamTable
from slotkeeper.retry.downstream.health import Breaker, Change, Health, State
from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request_table import Leaving
from slotkeeper_cli.account import Account
from slotkeeper_cli.attention import attention
from slotkeeper_cli.process_queue import queues
from slotkeeper_cli.row_search import RowSearch
from slotkeeper_cli.stack_connection import StackConnection
from tests.command.account_contents import add_malformed, edit, fail, give_up, send_dead_letter, succeed
from tests.command.operator_account import NOW, Operator, StubbedCalls, stack_of
from tests.command.situations import Names, set_clock

SINCE = "2026-09-21T14:13:20Z"  # NOW
HOUR = 3600.0
DENIED = {"Error": {"Code": "AccessDenied", "Message": "no"}}


@dataclass(frozen=True)
class Trouble:
    """One row. The texts of the item may name `{values}` that `state` returns.

    Args:
        what: the item's `what`, in full.
        why: a part of its `why`.
        command: None: there is none.
        after: seconds from NOW to the clock of the reader.
    """

    state: Callable[[Operator], Names | None]
    severity: str
    what: str
    why: str = ""
    command: str | None = None
    process: str | None = "sample"
    since: str | None = SINCE
    after: float = 60


@pytest.fixture(autouse=True)
def deployed(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A stack with one alarm, which does not ring."""
    monkeypatch.setenv("TZ", "UTC")
    with stack_of(("JobAlarm", "job-alarm", "AWS::CloudWatch::Alarm")), alarm("OK"):
        yield


def alarm(state: str, **more: Any) -> StubbedCalls:
    described = {"AlarmName": "job-alarm", "StateValue": state, **more}
    return StubbedCalls("cloudwatch", {"DescribeAlarms": lambda _: {"MetricAlarms": [described]}})


def items() -> list[dict[str, Any]]:
    """The items, which are all that could be read."""
    found = attention(Account(StackConnection("slotkeeper")))
    assert found["not_read"] == []
    return list(found["items"])


def _killed(operator: Operator) -> Names:
    name = operator.hold("a")
    operator.stop(name)
    arn = operator.workflow.execution_arn(name)
    operator.end(arn, "ABORTED", stopped=NOW)
    return {"a": name}


def _gone(operator: Operator) -> Names:
    """Its workflow has no execution."""
    return {"a": operator.hold("a", started=False)}


def _stranded(operator: Operator) -> Names:
    names = _killed(operator)
    operator.release(names["a"])
    return names


def _malformed(operator: Operator) -> None:
    add_malformed(operator)
    for request_id in "ab":
        operator.wait(request_id, "odd")


def _removed(operator: Operator) -> None:
    operator.processes.create("rem", 3, "sample-job")
    for number in range(20):
        operator.wait(f"r{number}", "rem")
    operator.processes.pause("rem")
    assert operator.processes.remove("rem")


def _rejected(operator: Operator) -> None:
    _removed(operator)
    for row in operator.rows.queue("rem").rows:
        left = Leaving(row.queued.execution, "REJECTED", "UnknownProcess", "process 'rem' does not exist")
        assert operator.requests.end_homeless("rem", [left], NOW + 1, exists=False)
        operator.publish(row.queued.execution, "rem")


def _added_again(operator: Operator) -> None:
    _rejected(operator)
    operator.processes.create("rem", 3, "sample-job")


def _event_source(operator: Operator) -> None:
    operator.event_source = "Disabled"
    operator.send("a")


def _stopped(change: str) -> Callable[[Operator], None]:
    def state(operator: Operator) -> None:
        operator.wait("a")
        operator.wait("b")
        if change == "limit":
            operator.processes.set_limit("sample", 0)
        else:
            operator.processes.pause("sample")

    return state


def _always_fails(operator: Operator) -> None:
    for number in range(31):
        fail(operator, f"r{number}", "month must be in 1..12")


def _fails_again(operator: Operator) -> None:
    succeed(operator, "good")
    edit_ends(operator, "good", NOW)
    for number in range(4):
        fail(operator, f"r{number}", "month must be in 1..12")


def edit_ends(operator: Operator, request_id: str, ended: float) -> None:
    """Let a request have ended at another time."""
    (row,) = (each for each in operator.rows.rows("sample").rows if each.request_id == request_id)
    operator.dynamodb.update_item(
        TableName=operator.outputs["RequestTableName"],
        Key={"process_name": {"S": row.process}, "execution": {"S": row.execution}},
        UpdateExpression="SET ended = :ended",
        ExpressionAttributeValues={":ended": {"N": str(ended)}},
    )


def _fails_sometimes(operator: Operator) -> None:
    for number in range(5):
        fail(operator, f"r{number}")
        edit_ends(operator, f"r{number}", NOW + number)
    succeed(operator, "good")


def _late(operator: Operator) -> None:
    for request_id in "ab":
        name = operator.wait(request_id, start_before="2026-09-21T14:13:40Z")
        operator.leave(name, "TOO_LATE", "TooLate", "its start_before has passed")


def _rate(operator: Operator) -> None:
    operator.processes.set_limit("sample", 5)
    operator.processes.set_rate("sample", Rate(1, 600))
    edit(operator, "next_start", {"N": str(int(NOW + 600) * 1000)})
    operator.wait("b")
    operator.wait("c")


def _blocked(operator: Operator) -> None:
    operator.wait("a", weight=4)
    operator.wait("b", weight=2)


def _breaker(since: float, forced: bool = False) -> Callable[[Operator], None]:
    def state(operator: Operator) -> None:
        opened = Change(since, State.OPEN, "18 of the last 18 calls failed")
        health = Health(Breaker(state=State.OPEN, since=since, probe_at=NOW + 90, changes=(opened,)))
        if forced:
            health = rules.force_open(Health(), since, "maintenance", "user/anna")
        table = DownstreamTable(operator.dynamodb, operator.outputs["DownstreamTableName"])
        table.change("mail", lambda _: (health, None))

    return state


def _refused(operator: Operator) -> None:
    for number in range(50):
        send_dead_letter(operator, "not JSON", f"m-{number}", number)
    url = operator.outputs["RequestDeadLetterQueueUrl"]
    operator.sqs.receive_message(QueueUrl=url, VisibilityTimeout=600)  # another command reads one


def _unpublished(operator: Operator) -> None:
    for number, request_id in enumerate("ab"):
        left = Leaving(operator.wait(request_id), "CANCELLED", "Cancelled", "no")
        operator.requests.leave("sample", [left], NOW + number)


def _lease(operator: Operator) -> None:
    operator.processes.create("leases", 1, NO_TARGET)
    operator.lease("lease-1", int(NOW) - 5, "leases")


TROUBLES = {
    "a killed execution holds a slot, which is about to be freed": Trouble(
        _killed,
        "warn",
        "process sample: a holds a slot, but its execution is ABORTED",
        "The janitor releases it once its work has ended, after 12 min at the latest.",
        "slotkeeper explain {a}",
    ),
    "a killed execution holds a slot that should have been freed": Trouble(
        _killed,
        "bad",
        "process sample: a holds a slot, but its execution is ABORTED",
        "The janitor should have released it",
        "slotkeeper holder release {a}",
        after=721,
    ),
    "a holder has no execution": Trouble(
        _gone,
        "bad",
        "process sample: a holds a slot, but it has no execution",
        "The janitor should have released it",
        "slotkeeper holder release {a}",
        after=721,
    ),
    "a lease has ended, and was not removed": Trouble(
        _lease,
        "bad",
        "process leases: lease lease-1 has ended, and holds a slot",
        command="slotkeeper holder release lease-1",
        process="leases",
        since="2026-09-21T14:13:20Z",
        after=601,
    ),
    "an item is malformed": Trouble(
        _malformed,
        "bad",
        "the item of process odd is malformed, and 2 requests are queued",
        "slot_limit",
        "slotkeeper process repair odd",
        process="odd",
    ),
    "a process was removed, and no dispatch has rejected its requests": Trouble(
        _removed,
        "bad",
        "process rem does not exist, and 20 requests are queued",
        "run if it is added again",
        "slotkeeper process add rem --limit 1 --target JOB_OR_ARN",
        process="rem",
    ),
    "a process was removed, and its requests were rejected": Trouble(
        _rejected,
        "warn",
        "process rem: 20 requests rejected in the last day",
        "redrive them: slotkeeper failed redrive --process rem --code UnknownProcess",
        "slotkeeper process add rem --limit 1 --target JOB_OR_ARN",
        process="rem",
        since="2026-09-21T14:13:21Z",
    ),
    "a process was removed, and exists again": Trouble(
        _added_again,
        "warn",
        "process rem: 20 requests rejected in the last day",
        "UnknownProcess: process 'rem' does not exist",
        "slotkeeper failed list --process rem --code UnknownProcess",
        process="rem",
        since="2026-09-21T14:13:21Z",
    ),
    "an event source is disabled": Trouble(
        _event_source,
        "bad",
        "no function receives messages of RequestQueue: its event source mapping is Disabled",
        "No request that is sent is queued or started. 1 message is waiting there.",
        "aws lambda update-event-source-mapping --enabled --uuid mapping-1",
        process=None,
    ),
    "50 malformed messages": Trouble(
        _refused,
        "warn",
        "RequestDeadLetterQueue has 50 messages",
        "They are no requests",
        "slotkeeper dlq list request",
        process=None,
        since=None,
    ),
    "work was given up": Trouble(
        give_up,
        "warn",
        "WorkDeadLetterQueue has 1 message",
        "The worker gave this work up.",
        "slotkeeper dlq list work",
        process=None,
        since=None,
    ),
    "the limit is 0, and requests are queued": Trouble(
        _stopped("limit"),
        "bad",
        "process sample: 2 requests are queued: the process has no slots",
        "The process starts nothing.",
        "slotkeeper process set-limit sample 1",
    ),
    "a process is paused, and requests are queued": Trouble(
        _stopped("pause"),
        "warn",
        "process sample: 2 requests are queued: the process is paused",
        "The process starts nothing.",
        "slotkeeper process resume sample",
    ),
    "a process always fails": Trouble(
        _always_fails,
        "bad",
        "process sample failed 31 of 31",
        "The last one: Glue.Failed: month must be in 1..12. A redrive fails alike until the cause is fixed.",
        "slotkeeper explain r30 --process sample",
        since="2026-09-21T14:13:50Z",
    ),
    "the last requests of a process failed": Trouble(
        _fails_again,
        "bad",
        "process sample failed its last 4 requests",
        "A redrive fails alike until the cause is fixed.",
        "slotkeeper explain r3 --process sample",
        since="2026-09-21T14:13:50Z",
    ),
    "some requests failed": Trouble(
        _fails_sometimes,
        "warn",
        "process sample: 5 requests failed in the last day",
        "The last one: Glue.Failed: the job failed",
        "slotkeeper failed list --process sample",
        since="2026-09-21T14:13:50Z",
    ),
    "requests were too late": Trouble(
        _late,
        "warn",
        "process sample: 2 requests too late in the last day",
        "Their start_before had passed",
        "slotkeeper failed list --process sample --code TooLate",
        since="2026-09-21T14:13:50Z",
    ),
    "a rate makes requests wait": Trouble(
        _rate,
        "warn",
        "process sample: 2 requests are queued: the rate of 1/600 s permits the next start in 540.0 s",
        "Slots are free. This is as it was set.",
        "slotkeeper explain --process sample",
    ),
    "requests are above the limit": Trouble(
        _blocked,
        "bad",
        "process sample: 2 requests are queued: blocked: weight 4 above the limit 1",
        "Raise the limit, or cancel them.",
        "slotkeeper process set-limit sample 4",
    ),
    "requests are above the limit of a key": Trouble(
        lambda operator: operator.processes.set_key_limit("sample", 0) or (operator.wait("a", key="acme") and None),
        "bad",
        'process sample: 1 request is queued: blocked: weight 1 above the limit 0 of key "acme"',
        "Raise the limit of the key, or cancel them.",
        "slotkeeper process set-key-limit sample 1 --key acme",
    ),
    "a request could start, and does not": Trouble(
        lambda operator: operator.wait("b") and operator.wait("a", priority="high") and None,
        "warn",
        "process sample: a waits for a dispatch",
        "It can start, and a dispatch is about to start it. The janitor dispatches it within two minutes.",
        "slotkeeper doctor --only event-sources",
    ),
    "a deadline is near": Trouble(
        lambda operator: operator.hold("a") and operator.wait("b", start_before="2026-09-21T14:18:20Z") and None,
        "warn",
        "process sample: b must start within 4 min, before 2026-09-21 14:18:20 UTC",
        "It waits: 1 of 1 slot in use.",
        "slotkeeper explain b --process sample",
    ),
    "the counter has drifted": Trouble(
        lambda operator: edit(operator, "slots_in_use", {"N": "1"}),
        "bad",
        "process sample: slots_in_use is 1, but 0 in use by holders",
        "The janitor repairs it",
        "slotkeeper stack reconcile sample",
        since=None,
    ),
    "a started request has no execution and no slot": Trouble(
        _stranded,
        "bad",
        "process sample: a is started, but its execution ended ABORTED",
        "The janitor should have recorded how it ended",
        "slotkeeper stack reconcile",
        after=721,
    ),
    "ends are not published": Trouble(
        _unpublished,
        "bad",
        "process sample: 2 ends not published, first of a",
        "Callers may still wait for their answers.",
        "slotkeeper doctor --only event-sources",
        after=301,
    ),
    "a downstream is dead": Trouble(
        _breaker(NOW),
        "warn",
        "downstream mail: the breaker is open",
        "18 of the last 18 calls failed. Messages are held back until a probe succeeds.",
        "slotkeeper retry breaker show mail",
        process=None,
    ),
    "an operator has opened a breaker": Trouble(
        _breaker(NOW, forced=True),
        "warn",
        "downstream mail: the breaker is open",
        "maintenance, by user/anna. Messages are held back until it is closed.",
        "slotkeeper retry breaker close mail --why TEXT",
        process=None,
    ),
}


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_a_trouble_is_found_with_its_reason_and_command(
    trouble: Trouble, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = trouble.state(operator) or {}
    set_clock(monkeypatch, NOW + trouble.after)
    found = items()
    item = {**found[0], "why": ""}
    wanted = {"severity": trouble.severity, "process": trouble.process, "since": trouble.since, "why": ""}
    texts = {"what": trouble.what, "command": trouble.command}
    assert item == wanted | {name: text and text.format(**names) for name, text in texts.items()}
    assert trouble.why in found[0]["why"]


def test_a_healthy_stack_needs_no_attention(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    operator.processes.set_limit("sample", 2)
    operator.release(operator.hold("its execution rings"))
    operator.hold("a")
    operator.hold("b")
    operator.wait("c")
    operator.processes.create("leases", 1, NO_TARGET)
    operator.lease("lease-1", int(NOW + HOUR) - 600, "leases")  # it has ended, and the janitor is about to remove it
    set_clock(monkeypatch, NOW + HOUR)
    assert items() == []


def test_a_malformed_process_is_not_to_be_added(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    _added_again(operator)
    edit(operator, "slot_limit", {"S": "3"}, "rem")
    set_clock(monkeypatch, NOW + 60)
    commands = [each["command"] for each in items()]
    listed = "slotkeeper failed list --process rem --code UnknownProcess"
    assert commands == ["slotkeeper process repair rem", listed]


def test_a_request_that_is_being_started_needs_no_attention(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.processes.set_limit("sample", 2)
    name = operator.wait("reserved", start_before="2026-09-21T14:18:20Z")
    operator.start(name, started=False, confirmed=False)
    operator.wait("sent now")
    set_clock(monkeypatch, NOW + 20)
    assert items() == []


def test_nothing_is_said_of_what_ended_between_two_reads(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder that has released its slot, and a request that was started, since the table was read."""
    name = operator.hold("a")
    operator.processes.create("other", 1, "sample-job")
    queued = operator.wait("b", "other")
    set_clock(monkeypatch, NOW + 60)
    account = Account(StackConnection("slotkeeper"))
    assert queues(account).of["other"].rows
    operator.release(name)
    operator.stop(name)
    operator.start(queued, "other")
    assert [each["what"] for each in attention(account)["items"]] == []


def test_a_malformed_item_is_found_without_the_permission_to_read_queues(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _malformed(operator)
    set_clock(monkeypatch, NOW + 60)
    with StubbedCalls("dynamodb", {"Scan": lambda asked: DENIED if "IndexName" in asked else None}):
        found = attention(Account(StackConnection("slotkeeper")))
    assert [each["what"] for each in found["items"]] == ["the item of process odd is malformed"]
    assert "AccessDenied" in found["not_read"][0]["why"]


def test_executions_that_were_not_read_are_counted(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slotkeeper_cli.account.MAX_DESCRIBED", 0)
    operator.processes.set_limit("sample", 2)
    _stranded(operator)
    operator.stop(operator.hold("b"))
    set_clock(monkeypatch, NOW + 60)
    found = [each["what"] for each in items()]
    assert found == ["1 of 1 holder not checked", "1 of 1 started request not checked"]


def test_a_queue_has_its_own_order_not_that_of_the_scan(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    operator.wait("b")
    operator.wait("a", priority="high")
    real = RowSearch.index
    monkeypatch.setattr(RowSearch, "index", lambda *asked: reversed([*real(*asked)]))
    found = queues(Account(StackConnection("slotkeeper")))
    assert [row.request_id for row in found.of["sample"].rows] == ["a", "b"]


def test_many_alike_are_three_and_their_number(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    operator.processes.set_limit("sample", 20)
    for number in range(20):
        operator.hold(str(number), started=False)
    set_clock(monkeypatch, NOW + 721)
    found = [each["what"] for each in items()]
    assert len(found) == 4
    assert found[3].startswith("17 more, such as: process sample: ")


def test_the_worst_comes_first_and_an_alarm_names_its_first_step(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _refused(operator)
    _stopped("limit")(operator)
    set_clock(monkeypatch, NOW + 60)
    described = "It failed. First step: `slotkeeper failed list --stack s`. Runbook: https://x#jobalarm"
    more = {
        "AlarmDescription": described,
        "StateReason": "1 > 0",
        "StateUpdatedTimestamp": datetime.fromtimestamp(NOW, UTC),
    }
    with alarm("ALARM", **more):
        found = items()
    assert [each["severity"] for each in found] == ["bad", "bad", "warn"]
    assert found[1] == {
        "severity": "bad",
        "process": None,
        "what": "JobAlarm is in ALARM",
        "since": SINCE,
        "why": "1 > 0 First step: `slotkeeper failed list --stack s`. Runbook: https://x#jobalarm",
        "command": "slotkeeper failed list --stack s",
    }


def test_what_could_not_be_read_is_named_once_for_each_reason(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _refused(operator)
    set_clock(monkeypatch, NOW + 60)
    with StubbedCalls("dynamodb", {"Scan": lambda _: DENIED}):
        found = attention(Account(StackConnection("slotkeeper")))
    assert [each["what"] for each in found["items"]] == ["RequestDeadLetterQueue has 50 messages"]
    (one,) = found["not_read"]
    assert "no item of SlotTable is malformed" in one["source"]
    assert one["why"] == "Scan failed with AccessDenied: no (the permissions of each command: docs/permissions.md)"
