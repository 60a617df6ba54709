"""What `slotkeeper explain`, which is also `slotkeeper request show`, answers about requests and leases."""

from __future__ import annotations

from functools import partial
from typing import Any

from slotkeeper.slots.request import execution_name
from slotkeeper.slots.request_table import Leaving
from slotkeeper.slots.targets import execution_arn
from tests.cli.account_contents import edit, fail, fail_held, job_run, send_dead_letter, succeed
from tests.cli.operator_account import NOW, Operator
from tests.cli.situations import Names, Situation


def _behind_a(operator: Operator, **fields: Any) -> Names:
    return {"a": operator.hold("a"), "b": operator.wait("b", **fields)}


def _with_history(operator: Operator) -> Names:
    """Six executions of the process have ended."""
    for number in range(6):
        succeed(operator, f"old{number}")
    return _behind_a(operator)


def _disabled(operator: Operator) -> Names:
    operator.event_source = "Disabled"
    return _behind_a(operator)


def _free_while_disabled(operator: Operator) -> None:
    """Nothing but the event source keeps b from starting."""
    operator.event_source = "Disabled"
    operator.wait("b")


def _sent_while_disabled(operator: Operator) -> None:
    operator.event_source = "Disabled"
    operator.send("c")


def _many_reasons(operator: Operator) -> None:
    """A process whose counter is too high, with requests of all priorities: one of them is too heavy."""
    operator.processes.set_limit("sample", 6)
    operator.hold("a", weight=4)
    operator.wait("low one", "sample", "low", weight=3)
    operator.wait("heavy one", weight=7)
    operator.wait("urgent", "sample", "high", weight=3)
    edit(operator, "slots_in_use", {"N": "5"})


def _paused(operator: Operator) -> None:
    operator.wait("b")
    operator.processes.pause("sample")


def _without_slots(operator: Operator) -> None:
    for request_id in ("a", "b"):
        operator.wait(request_id)
    operator.processes.set_limit("sample", 0)


def _malformed(operator: Operator) -> Names:
    """A limit stored as a text; request a runs, b and c are queued."""
    names = {"a": operator.hold("a")}
    for request_id in ("b", "c"):
        operator.wait(request_id)
    edit(operator, "slot_limit", {"S": "1"})
    return names


def _malformed_row(operator: Operator) -> None:
    key = {"process_name": {"S": "sample"}, "execution": {"S": operator.wait("b")}}
    operator.dynamodb.update_item(
        TableName=operator.outputs["RequestTableName"],
        Key=key,
        UpdateExpression="SET sent = :text",
        ExpressionAttributeValues={":text": {"S": "yesterday"}},
    )


def _without_process(operator: Operator) -> None:
    """A request of a process that was removed, which no dispatch has rejected yet."""
    operator.processes.create("gone", 1, "sample-job")
    operator.wait("b", "gone")
    operator.dynamodb.delete_item(TableName=operator.outputs["SlotTableName"], Key={"process_name": {"S": "gone"}})


def _unknown_process(operator: Operator) -> None:
    """A request of a process that never existed, which a dispatch has rejected."""
    name = operator.wait("b", "typo")
    operator.requests.end_homeless("typo", [Leaving(name, "REJECTED", "UnknownProcess", "no such")], NOW, exists=False)


def _running(operator: Operator) -> Names:
    name = operator.hold("a")
    return {"a": name, "run": operator.run_glue(name)}


def _stopped(operator: Operator) -> Names:
    names = _running(operator)
    operator.stop(names["a"])
    return names


def _released(operator: Operator) -> None:
    operator.release(operator.hold("a"))


def _aborted(operator: Operator) -> None:
    """Its slot was freed manually, and the janitor has not recorded its end."""
    name = operator.hold("a")
    operator.release(name)
    operator.stop(name)


def _recorded(operator: Operator) -> None:
    """It has recorded its success, and not released its slot."""
    operator.succeed(operator.hold("a"))


def _succeeded(operator: Operator) -> Names:
    return {"run": operator.run_glue(succeed(operator), "SUCCEEDED")}


def _child_succeeded(operator: Operator) -> Names:
    machine = operator.machine("load")
    name = operator.hold("a", "load")
    child = operator.run_child(name, machine)
    operator.end(child, "SUCCEEDED", output='{"rows": 31}')
    operator.succeed(name, "load")
    operator.release(name, "load")
    operator.end(execution_arn(operator.outputs["WorkflowArn"], name), "SUCCEEDED")
    return {"child": child}


def _returned(operator: Operator) -> Names:
    """The reservation of a slow starter was taken back, and its workflow has found no slot."""
    name = operator.hold("a", confirmed=False)
    operator.release(name)
    return {"a": name, "again": operator.give_back(name)}


def _failed(operator: Operator) -> Names:
    return {"a": fail(operator, cause=job_run("no such month"))}


def _redriven(operator: Operator) -> Names:
    _failed(operator)
    assert operator.run("failed", "redrive", "a", "--yes").exit_code == 0
    return {"again": execution_name("sample", "a", 2)}


def _failed_twice(operator: Operator) -> None:
    again = _redriven(operator)["again"]
    operator.start(again)
    fail_held(operator, again)


def _ended(end: str, code: str, operator: Operator) -> None:
    operator.leave(operator.wait("a", start_before="2099-11-28T08:00:00Z"), end, code, f"because of {code}")


def _unpublished(operator: Operator) -> None:
    """It has failed, and the sender of answers has not published it yet."""
    name = operator.hold("a")
    operator.fail(name, "Glue.Failed", "no such month")
    operator.release(name)


def _discarded(operator: Operator) -> None:
    assert operator.requeues.discard("sample", fail(operator))


def _reused(operator: Operator) -> None:
    """Another request was sent with the id of one that waits."""
    operator.wait("a")
    operator.wait("a", arguments={"--day": "2"})


def _of_two_callers(operator: Operator) -> Names:
    """A caller's own retry of its task, which has another token; the answer to the first one was lost."""
    first = operator.hold("a", task_token="t" * 100)
    operator.succeed(first)
    operator.release(first)
    return {"first": first, "second": operator.wait("a", task_token="u" * 100)}


def _lease(until: int, operator: Operator) -> None:
    operator.lease("lease-1", until)


def _reserved(operator: Operator) -> None:
    operator.hold("a", started=False, confirmed=False)


_NOT_FOUND = (
    "No request typo found. Possible reasons:",
    "- it was never sent",
    "no request typo found, and no message",
)

SITUATIONS = {
    "a request waits for the only slot": Situation(
        _behind_a,
        "explain b",
        says=(
            "b in sample: queued",
            "it is number 1 of 1 in the queue, and has waited for 59 s: 1 of 1 slot in use.",
            "a  RUNNING for 1 min  {a}",
            "expected start: not known: 0 recent requests of the process, 5 are needed",
            "-> slotkeeper request cancel b --process sample",
            "attempt 1: queued  {b}",
        ),
        shows={
            "state": "queued",
            "position": 1,
            "ahead": 0,
            "reasons.0.condition": "slots",
            "reasons.0.slot_limit": 1,
            "next.0": "slotkeeper request cancel b --process sample",
            "found.0.holders.0.request_id": "a",
            "found.0.expected_start.samples": 0,
        },
    ),
    "a request waits behind others": Situation(
        _many_reasons,
        "explain 'low one'",
        says=(
            "low one in sample: queued",
            "it is number 2 of 3 in the queue",
            "- behind urgent, which is next",
            "- weight 3 does not fit: 5 of 6 in use by 1 holder, by a counter that is 1 too high",
            "-> slotkeeper stack reconcile sample",
        ),
        shows={
            "position": 2,
            "ahead": 1,
            "reasons.0.first": "urgent",
            "reasons.1.held_weight": 4,
            "next.0": "slotkeeper stack reconcile sample",
        },
    ),
    "a request is heavier than the limit, and keeps no other back": Situation(
        _many_reasons,
        "explain 'heavy one'",
        says=("it is one of 3 in the queue", "blocked: weight 7 above the limit 6", "-> slotkeeper process set-limit"),
        never=("expected start",),
        shows={"position": None, "ahead": None, "reasons.0.condition": "limit"},
    ),
    "a holder has run for longer than each recent request": Situation(
        _with_history,
        "explain b",
        says=("expected start: not known: the holders have run for longer than each recent request (6 recent",),
        shows={"found.0.expected_start.samples": 6, "found.0.expected_start.earliest": None},
    ),
    "a request must start before a time": Situation(
        partial(_behind_a, start_before="2099-11-28T08:00:00Z"),
        "explain b",
        says=("1 of 1 slot in use. If it has not started before 2099-11-28 08:00:00 UTC, it ends as too late.",),
    ),
    "a request that skips cannot start": Situation(
        partial(_behind_a, when_busy="skip"),
        "explain b",
        says=("it cannot start now, and is about to be skipped",),
        never=("expected start",),
        shows={"position": None, "reasons.0.condition": "skip"},
    ),
    "the process is paused": Situation(
        _paused,
        "explain b",
        says=("the process is paused", "-> slotkeeper process resume sample"),
        shows={"position": 1},
    ),
    "the process has no slots": Situation(
        _without_slots,
        "explain b",
        says=(
            "it is number 2 of 2 in the queue",
            "the process has no slots",
            "-> slotkeeper process set-limit sample 1",
        ),
        shows={"position": 2},
    ),
    "a request can start": Situation(
        lambda operator: {"b": operator.wait("b")},
        "explain {b}",
        says=("it is number 1 of 1", "it can start, and a dispatch is about to start it"),
        never=("the janitor",),
        shows={"request_id": "b", "reasons.0.condition": "next"},
    ),
    "the doorbell is disabled, and the slot is in use": Situation(
        _disabled,
        "explain b",
        says=(
            "1 of 1 slot in use; no function receives messages of DispatchQueue: its event source mapping is Disabled; "
            "the janitor starts what can start, once a minute",
            "-> aws lambda update-event-source-mapping --enabled --uuid mapping-1",
        ),
        never=("expected start",),
    ),
    "the doorbell is disabled, and a slot is free": Situation(
        _free_while_disabled,
        "explain b",
        says=("no function receives messages of DispatchQueue", "the janitor starts what can start, once a minute"),
        shows={"reasons.1.condition": "event source"},
    ),
    "a request was not accepted yet": Situation(
        lambda operator: operator.send("c") and None,
        "explain c",
        says=(
            "No request c found",
            "Not read: about 1 message of RequestQueue: the starter accepts them within seconds: run this again",
            "no request c found in what could be read",
        ),
        shows={"state": None, "position": None, "not_read.0.source": "RequestQueue"},
        exit_code=1,
    ),
    "a request is not accepted, since no function receives it": Situation(
        _sent_while_disabled,
        "explain c",
        says=(
            "about 1 message of RequestQueue: no function receives messages of RequestQueue",
            "aws lambda update-event-source-mapping --enabled --uuid mapping-1",
        ),
        never=("within seconds",),
        exit_code=1,
    ),
    "a request was never sent": Situation(
        lambda _: None,
        "explain typo",
        says=_NOT_FOUND,
        never=("sample-", "Not read"),
        shows={"state": None, "reasons": [], "next": [], "not_read": []},
        exit_code=4,
    ),
    "a request was never sent to this process": Situation(
        lambda operator: operator.wait("b") and None,
        "explain typo --process sample",
        says=_NOT_FOUND,
        exit_code=4,
    ),
    "a row is malformed": Situation(
        _malformed_row,
        "explain b",
        says=("Not read: RequestTable: request sample-", "sent must be of DynamoDB type N", "in what could be read"),
        exit_code=1,
    ),
    "the item of a process is malformed, and a request of it runs": Situation(
        _malformed,
        "explain a",
        says=(
            "a in sample: started",
            "its execution is RUNNING. Whether it holds its slot could not be read.",
            "attempt 1: started  {a}",
            "Not read: SlotTable: the item of process sample is malformed",
            "slotkeeper process repair sample",
        ),
        shows={"state": "started"},
    ),
    "the item of a process is malformed, and a request of it is queued": Situation(
        _malformed,
        "explain c",
        says=(
            "c in sample: queued",
            "it is number 2 of 2 in the queue",
            "the item of process sample is malformed, so no request of it starts",
            "-> slotkeeper process repair sample",
        ),
        never=("it can start",),
        shows={"position": 2, "reasons.0.condition": "malformed process"},
    ),
    "a process was removed while a request was queued": Situation(
        _without_process,
        "explain b",
        says=(
            "b in gone: queued",
            "its process does not exist: the next dispatch rejects it",
            "-> slotkeeper process add gone",
        ),
    ),
    "a request of an unknown process": Situation(
        _unknown_process,
        "explain b",
        says=(
            "b in typo: rejected",
            "attempt 1 was rejected at 2026-09-21 14:13:20 UTC (UnknownProcess): no such.",
            "-> slotkeeper process add typo --limit 1 --target JOB_OR_ARN",
            "-> slotkeeper failed redrive b --process typo",
        ),
        shows={"state": "rejected"},
    ),
    "a request runs": Situation(
        _running,
        "explain a",
        says=(
            "a in sample: started",
            "it has held a slot for 1 min, and its Glue run {run} is RUNNING.",
            "-> slotkeeper request cancel a --process sample --stop",
            "glue run: RUNNING {run}",
        ),
        shows={"state": "started", "position": None, "reasons": []},
    ),
    "a slot is reserved for a request": Situation(
        _reserved,
        "explain a",
        says=("a in sample: queued", "A slot was reserved for it 1 min ago, and its workflow is being started."),
        never=("has probably died", "expected start"),
        shows={"state": "queued", "position": None},
    ),
    "a starter died between the reservation and the start": Situation(
        _reserved,
        "explain a",
        says=("reserved for it 3 min ago", "Its starter has probably died: the next dispatch starts it again."),
        at=NOW + 180,
    ),
    "an aborted execution holds its slot": Situation(
        _stopped,
        "explain a",
        says=("a in sample: started", "its execution has ended (ABORTED), and its slot will be free by about"),
    ),
    "a request has no slot any more, and its execution has not ended": Situation(
        _released, "explain a", says=("a in sample: started", "it holds no slot, and its execution is about to end.")
    ),
    "a request has no slot any more, and its execution was aborted": Situation(
        _aborted, "explain a", says=("its execution has ended (ABORTED). Its end is about to be recorded.",)
    ),
    "a request has recorded its success, and holds its slot": Situation(
        _recorded,
        "explain a",
        says=("a in sample: succeeded", "attempt 1 succeeded at 2026-09-21", ", and is about to release its slot."),
    ),
    "a request succeeded": Situation(
        _succeeded,
        "explain a",
        says=(
            "a in sample: succeeded",
            "attempt 1 succeeded at ",
            ": Glue run {run} SUCCEEDED.",
            "attempt 1: succeeded",
        ),
        shows={"state": "succeeded", "next": []},
    ),
    "a request of a state machine succeeded": Situation(
        _child_succeeded,
        "explain a",
        says=("a in load: succeeded", ": child execution {child} SUCCEEDED.", 'output: {"rows": 31}'),
    ),
    "a request lost its slot before its work began": Situation(
        _returned,
        "explain a",
        says=("a in sample: queued", "it is number 1 of 1", "attempt 1: returned  {a}", "attempt 2: queued  {again}"),
        shows={"found.0.attempts.0.state": "returned", "found.0.attempts.1.execution": "{again}"},
    ),
    "a request failed": Situation(
        _failed,
        "explain a",
        says=(
            "a in sample: failed",
            "attempt 1 failed at 2026-09-21 14:13:50 UTC (Glue.Failed): no such month.",
            "-> slotkeeper failed redrive a --process sample",
            "failed glue run: jr_1",
        ),
        shows={"state": "failed", "found.0.attempts.0.reason": "no such month"},
    ),
    "a request failed, and its end is not published": Situation(
        _unpublished,
        "explain a",
        says=(
            "attempt 1 failed at 2026-09-21 14:13:50 UTC (Glue.Failed): no such month. Its end is not published",
            "the janitor repeats it.",
        ),
        shows={"found.0.attempts.0.published": False},
    ),
    "a failed request was discarded": Situation(
        _discarded,
        "explain a",
        says=("(Glue.Failed): the job failed. It was discarded.", "-> slotkeeper request submit --process sample"),
        never=("redrive",),
    ),
    "a failed request was redriven": Situation(
        _redriven,
        "explain a",
        says=("a in sample: queued", "it is number 1 of 1", "attempt 1: redriven", "attempt 2: queued  {again}"),
        shows={"found.0.attempts.0.state": "redriven", "found.0.attempts.1.execution": "{again}"},
    ),
    "a redriven request failed again": Situation(
        _failed_twice,
        "explain a",
        says=("a in sample: failed", "attempt 2 failed at", "attempt 1: redriven", "attempt 2: failed"),
    ),
    **{
        f"a request ended as {end}, {code}": Situation(
            partial(_ended, end, code),
            "explain a",
            says=(
                f"attempt 1 {words} at 2026-09-21 14:13:50 UTC ({code}): because of {code}.",
                f"-> slotkeeper {step}",
            ),
            never=("sample-",),
            shows={"state": state, "found.0.attempts.0.code": code, "found.0.attempts.0.execution": None},
        )
        for end, code, state, words, step in (
            ("SKIPPED", "Skipped", "skipped", "was skipped", "failed redrive a --process sample"),
            (
                "TOO_LATE",
                "TooLate",
                "too late",
                "was too late",
                "failed redrive a --process sample --start-before HH:MM",
            ),
            ("CANCELLED", "Cancelled", "cancelled", "was cancelled", "failed redrive a --process sample"),
            ("REJECTED", "NameTaken", "rejected", "was rejected", "failed redrive a --process sample"),
            ("REJECTED", "TooLarge", "rejected", "was rejected", "request submit --process sample --request-id A_NEW"),
        )
    },
    "another request was sent with the id": Situation(
        _reused,
        "explain a",
        says=(
            "a in sample: queued",
            "a in sample: rejected",
            "(RequestIdReused): request_id 'a' is already used by another request",
            "-> slotkeeper request submit --process sample --request-id A_NEW_ID",
        ),
        shows={"state": "queued", "found.1.state": "rejected"},
    ),
    "two callers wait for requests of one id": Situation(
        _of_two_callers,
        "explain a",
        says=("a in sample: succeeded", "{first}", "a in sample: queued", "{second}"),
        never=("tttt", "uuuu"),
    ),
    "the execution of a request with a caller is given": Situation(
        _of_two_callers, "explain {second}", says=("a in sample: queued", "{second}"), never=("{first}",)
    ),
    "a message is no request": Situation(
        lambda operator: send_dead_letter(operator, message_id="m-bad"),
        "explain m-bad",
        says=(
            "its message was not accepted, and is kept in RequestDeadLetterQueue for 14 days: because of Invalid",
            "-> slotkeeper dlq show request",
        ),
        never=("sample-",),
        shows={"state": "dead-lettered"},
    ),
    "a process with queued requests: what keeps a new request or lease from starting": Situation(
        _behind_a,
        "explain --process sample",
        says=(
            "a new request of sample:",
            "it would be number 2 in the queue",
            "behind b, which is next; 1 of 1 slot in use",
            "a  RUNNING for 1 min",
            "a lease of sample:",
            "- behind b, which is next",
            "- 1 of 1 slot in use",
        ),
        shows={"position": 2, "lease_reasons.0.condition": "queue", "reasons.1.condition": "slots", "queued": 1},
    ),
    "a process with free slots": Situation(
        lambda _: None,
        "explain --process sample",
        says=("a new request of sample:", "nothing keeps it from starting"),
        never=("a lease of",),
    ),
    "a process whose item is malformed": Situation(
        _malformed,
        "explain --process sample",
        says=("the item of process sample is malformed", "-> slotkeeper process repair sample", "Not read: SlotTable"),
        never=("nothing keeps it",),
    ),
    "a lease": Situation(
        partial(_lease, int(NOW) + 90),
        "explain lease-1",
        says=(
            "lease-1 in sample: a lease",
            "a block of code holds a slot of sample as this lease for 1 min, and the lease ends in 30 s.",
        ),
        never=("holder release",),
    ),
    "a lease that has expired": Situation(
        partial(_lease, int(NOW) + 30),
        "explain lease-1",
        says=("the lease expired 30 s ago", "-> slotkeeper holder release lease-1"),
    ),
}
