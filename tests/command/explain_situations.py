"""What `slotkeeper explain`, which is also `slotkeeper request show`, answers about requests and leases."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request import execution_name
from slotkeeper.slots.request_table import Leaving
from slotkeeper.slots.targets import execution_arn
from tests.command.account_contents import edit, fail, job_run, send_dead_letter, set_in_row, succeed
from tests.command.operator_account import NOW, Operator
from tests.command.situations import Names, Situation

State = Callable[[Operator], Names | None]


def _behind_a(operator: Operator, **fields: Any) -> Names:
    return {"a": operator.hold("a"), "b": operator.wait("b", **fields)}


def _behind_aborted(operator: Operator) -> Names:
    """Of three holders, the last one was aborted, and the one before has no execution."""
    operator.processes.set_limit("sample", 3)
    names = {"a": operator.hold("a"), "gone": operator.hold("gone", started=False), "c": operator.hold("c")}
    operator.wait("b")
    operator.stop(names["c"])
    return names


def _with_rate(operator: Operator) -> None:
    """Requests take half a minute, and one an hour may start."""
    for number in range(6):
        succeed(operator, f"old{number}")
    operator.processes.set_limit("sample", 2)
    operator.processes.set_rate("sample", Rate(1, 3600))
    for request_id in ("b", "c"):
        operator.wait(request_id)


def _disabled(operator: Operator) -> Names:
    operator.event_source = "Disabled"
    return _behind_a(operator)


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


def _malformed(operator: Operator) -> Names:
    """A limit stored as a text; request a runs, b and c are queued."""
    names = {"a": operator.hold("a")}
    for request_id in ("b", "c"):
        operator.wait(request_id)
    edit(operator, "slot_limit", {"S": "1"})
    return names


def _malformed_row(operator: Operator) -> None:
    set_in_row(operator, operator.wait("b"), sent={"S": "yesterday"})


def _without_process(operator: Operator) -> None:
    """A request of a process that was removed, which no dispatch has rejected yet."""
    operator.processes.create("gone", 1, "sample-job")
    operator.wait("b", "gone")
    operator.dynamodb.delete_item(TableName=operator.outputs["SlotTableName"], Key={"process_name": {"S": "gone"}})


def _unknown_process(operator: Operator) -> None:
    """A request of a process that never existed, which a dispatch has rejected."""
    name = operator.wait("b", "typo")
    operator.requests.end_homeless("typo", [Leaving(name, "REJECTED", "UnknownProcess", "no such")], NOW, exists=False)


def _process_added_later(operator: Operator) -> None:
    _unknown_process(operator)
    operator.processes.create("typo", 1, "sample-job")


def _skipped_and_sent_again(operator: Operator) -> Names:
    operator.leave(operator.wait("b", when_busy="skip"), "SKIPPED", "Skipped", "no slot was free")
    return {"b": operator.wait("b")}


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


def _failed_and_holds(operator: Operator) -> None:
    operator.fail(operator.hold("a"), "Glue.Failed", "no such month")


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


def _failed(message: str, operator: Operator) -> None:
    fail(operator, cause=job_run(message))


def _redriven(operator: Operator) -> Names:
    fail(operator)
    assert operator.run("failed", "redrive", "a", "--yes").exit_code == 0
    return {"again": execution_name("sample", "a", 2)}


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


def _row(state: State, question: str, *says: str, **options: Any) -> Situation:
    return Situation(state, question, says, **options)


_MINUTE_LATER = "2026-09-21 14:13:50 UTC"
_DISABLED = "no function receives messages of {}: its event source mapping is Disabled"
_ENABLE = "aws lambda update-event-source-mapping --enabled --uuid mapping-1"

_QUEUED = {
    "a request waits for the only slot": _row(
        _behind_a,
        "explain b",
        "b in sample: queued",
        "it is number 1 of 1 in the queue, and has waited for 59 s: 1 of 1 slot in use.",
        "held by a  RUNNING for 1 min  {a}",
        "expected start: not known: 0 recent requests of the process, 5 are needed",
        "-> slotkeeper request cancel b --process sample",
        "attempt 1: queued  {b}",
        shows={
            "state": "queued",
            "position": 1,
            "ahead": 0,
            "reasons.0.slot_limit": 1,
            "next.0": "slotkeeper request cancel b --process sample",
            "found.0.holders.0.request_id": "a",
            "found.0.attempts.0.timeline.1": {
                **{"what": "waited", "at": "2026-09-21T14:13:20Z", "for_seconds": 60},
                "why": "1 of 1 slot in use",
            },
        },
    ),
    "a holder was aborted, and another one has no execution": _row(
        _behind_aborted,
        "explain b",
        "held by c  RUNNING for 1 min, its execution is ABORTED: its slot will be freed  {c}",
        "held by a  RUNNING for 1 min  {a}",
        "held by gone  RUNNING for 1 min, its execution could not be found  {gone}",
        shows={"found.0.holders.0.execution_status": "ABORTED"},
    ),
    "a request waits behind others": _row(
        _many_reasons,
        "explain 'low one'",
        "number 2 of 3 in the queue, and has waited for 59 s: behind urgent, which is next; weight 3 does not fit: "
        "5 of 6 in use by 1 holder, by a counter that is 1 too high.",
        "-> slotkeeper stack reconcile sample",
        "priority: low; weight: 3",
        shows={"position": 2, "ahead": 1, "reasons.0.first": "urgent", "reasons.1.held_weight": 4},
    ),
    "a request is heavier than the limit, and keeps no other back": _row(
        _many_reasons,
        "explain 'heavy one'",
        "it is one of 3 in the queue",
        "blocked: weight 7 above the limit 6",
        "-> slotkeeper process set-limit",
        never=("expected start", "held by"),
    ),
    "a free slot is for the request before it": _row(
        lambda operator: {name: operator.wait(name) for name in ("b", "c")},
        "explain c",
        "0 of 1 slot in use, and 1 for requests before it, which can start",
    ),
    "the rate decides when a request starts": _row(
        _with_rate,
        "explain c",
        "number 2 of 2 in the queue, and has waited for 59 s: the rate of 1/hour permits the next start in 3600.0 s",
        "expected start: in 1 h, by about ",
        shows={"found.0.expected_start.seconds": 3600},
    ),
    "a request must start before a time": _row(
        partial(_behind_a, start_before="2099-11-28T08:00:00Z"),
        "explain b",
        "1 of 1 slot in use. If it has not started before 2099-11-28 08:00:00 UTC, it ends as too late.",
        "expected start: not known: 0 recent requests",
    ),
    "a request that skips cannot start": _row(
        partial(_behind_a, when_busy="skip"),
        "explain b",
        "it cannot start now, and is about to be skipped",
        never=("expected start",),
    ),
    "the doorbell is disabled, and the slot is in use": _row(
        _disabled,
        "explain b",
        f"1 of 1 slot in use; {_DISABLED.format('DispatchQueue')}; the janitor starts what can start, once a minute",
        f"-> {_ENABLE}",
        never=("expected start",),
    ),
    "a skipped request was sent again": _row(
        _skipped_and_sent_again,
        "explain b",
        "b in sample: queued",
        "it is number 1 of 1 in the queue",
        *("attempt 1: skipped", "attempt 2: queued  {b}"),
        shows={"found.0.attempts.0.timeline.2.why": "skipped: Skipped: no slot was free"},
    ),
    "a request lost its slot before its work began": _row(
        _returned,
        "explain a",
        *("a in sample: queued", "it is number 1 of 1", "attempt 1: returned  {a}", "attempt 2: queued  {again}"),
    ),
    "a slot is reserved for a request": _row(
        _reserved,
        "explain a",
        "a in sample: queued",
        "it has waited for 59 s. A slot was reserved for it 1 min ago, and its workflow is being started.",
        never=("has probably died", "expected start"),
    ),
    "a starter died between the reservation and the start": _row(
        _reserved,
        "explain a",
        *("reserved for it 3 min ago", "Its starter has probably died: the next dispatch starts it again."),
        at=NOW + 180,
    ),
    "a process was removed while a request was queued": _row(
        _without_process,
        "explain b",
        "its process does not exist: the next dispatch rejects it",
        "-> slotkeeper process add gone",
    ),
    "the item of a process is malformed, and a request of it is queued": _row(
        _malformed,
        "explain c",
        "it is number 2 of 2 in the queue",
        "the item of process sample is malformed, so no request of it starts",
        "-> slotkeeper process repair sample",
        never=("it can start",),
    ),
}

_NOT_FOUND = {
    "a request was not accepted yet": _row(
        lambda operator: operator.send("c") and None,
        "explain c",
        "Not read: about 1 message of RequestQueue: the starter accepts them within seconds: run this again",
        "no request c found in what could be read",
        shows={"state": None, "not_read.0.source": "RequestQueue"},
        exit_code=1,
    ),
    "a request is not accepted, since no function receives it": _row(
        _sent_while_disabled,
        "explain c",
        f"about 1 message of RequestQueue: {_DISABLED.format('RequestQueue')}: {_ENABLE}",
        never=("within seconds",),
        exit_code=1,
    ),
    "a request was never sent": _row(
        lambda _: None,
        "explain typo",
        "no request typo found: check the id. Rows are kept for 30 days after the end",
        never=("sample-", "Not read"),
        shows={"state": None, "reasons": [], "next": [], "not_read": []},
        exit_code=4,
    ),
    "a row is malformed": _row(
        _malformed_row,
        "explain b",
        *("Not read: RequestTable: 1 row is malformed: request", "sent must be of DynamoDB type N", "in what could be"),
        exit_code=1,
    ),
    "a message is no request": _row(
        lambda operator: send_dead_letter(operator, message_id="m-bad"),
        "explain m-bad",
        "about 1 message of RequestDeadLetterQueue: they were not accepted: slotkeeper dlq show request",
        exit_code=1,
    ),
}

_STARTED = {
    "a request runs": _row(
        _running,
        "explain a",
        "a in sample: started",
        "it has held a slot for 1 min, and its Glue run {run} is RUNNING.",
        "-> slotkeeper request cancel a --process sample --stop",
        "glue run: RUNNING {run}",
        shows={
            "position": None,
            "found.0.attempts.0.timeline.2.why": "Glue run {run} RUNNING",
            "found.0.attempts.0.timeline.2.for_seconds": 60,
        },
    ),
    "the item of a process is malformed, and a request of it runs": _row(
        _malformed,
        "explain a",
        "its execution is RUNNING. Whether it holds its slot could not be read.",
        "attempt 1: started  {a}",
        "Not read: SlotTable: the item of process sample is malformed",
        "slotkeeper process repair sample",
    ),
    "a holder has no execution": _row(
        _behind_aborted,
        "explain gone",
        "it has held a slot for 1 min, and its execution could not be found.",
        "-> slotkeeper holder release {gone}",
    ),
    "an aborted execution holds its slot": _row(
        _stopped,
        "explain a",
        "a in sample: started",
        "its execution has ended (ABORTED), and its slot will be free by about",
        "-> slotkeeper holder release {a}",
    ),
    "a request has no slot any more, and its execution has not ended": _row(
        _released, "explain a", "a in sample: started", "it holds no slot, and its execution is about to end."
    ),
    "a request has no slot any more, and its execution was aborted": _row(
        _aborted, "explain a", "its execution has ended (ABORTED). Its end is about to be recorded."
    ),
    "a lease": _row(
        partial(_lease, int(NOW) + 90),
        "explain lease-1",
        "lease-1 in sample: a lease",
        "a block of code holds a slot of sample as this lease for 1 min, and the lease ends in 30 s.",
        never=("holder release",),
    ),
    "a lease that has expired": _row(
        partial(_lease, int(NOW) + 30),
        "explain lease-1",
        *("the lease expired 30 s ago", "-> slotkeeper holder release lease-1"),
    ),
}

_ENDED = {
    "a request has recorded its failure, and holds its slot": _row(
        _failed_and_holds, "explain a", "(Glue.Failed): no such month, and is about to release its slot."
    ),
    "a request succeeded": _row(
        _succeeded,
        "explain a",
        *("a in sample: succeeded", ": Glue run {run} SUCCEEDED.", "attempt 1: succeeded"),
        shows={"state": "succeeded", "next": [], "found.0.attempts.0.timeline.3.why": "succeeded"},
    ),
    "a request of a state machine succeeded": _row(
        _child_succeeded,
        "explain a",
        *("a in load: succeeded", ": child execution {child} SUCCEEDED.", 'output: {"rows": 31}'),
    ),
    "a long error keeps its end": _row(
        partial(_failed, "Traceback: " + "at a line of the code; " * 40 + "KeyError: 'month'"),
        "explain a",
        *("(Glue.Failed): Traceback: at", "KeyError: 'month'.", "-> slotkeeper failed redrive a --process sample"),
        "failed glue run: jr_1",
    ),
    "a request failed, and its end is not published": _row(
        _unpublished,
        "explain a",
        f"attempt 1 failed at {_MINUTE_LATER} (Glue.Failed): no such month. Its end is not published",
        "the janitor repeats it.",
        shows={
            "found.0.attempts.0.published": False,
            "found.0.attempts.0.timeline.4.why": "not yet: the janitor repeats it",
        },
    ),
    "a failed request was discarded": _row(
        _discarded,
        "explain a",
        *("(Glue.Failed): the job failed. It was discarded.", "-> slotkeeper request submit --process sample"),
        never=("redrive",),
    ),
    "a failed request was redriven": _row(
        _redriven,
        "explain a",
        *("a in sample: queued", "it is number 1 of 1", "attempt 1: redriven", "attempt 2: queued  {again}"),
    ),
    **{
        f"a request ended as {end}, {code}": _row(
            partial(_ended, end, code),
            "explain a",
            f"attempt 1 {words} at {_MINUTE_LATER} ({code}): because of {code}.",
            f"-> slotkeeper {step}",
            never=("sample-",),
            shows={"found.0.attempts.0.code": code, "found.0.attempts.0.execution": None},
        )
        for end, code, words, step in (
            ("SKIPPED", "Skipped", "was skipped", "failed redrive a --process sample"),
            ("TOO_LATE", "TooLate", "was too late", "failed redrive a --process sample --start-before HH:MM"),
            ("CANCELLED", "Cancelled", "was cancelled", "failed redrive a --process sample"),
            ("REJECTED", "NameTaken", "was rejected", "failed redrive a --process sample"),
            ("REJECTED", "TooLarge", "was rejected", "request submit --process sample --request-id A_NEW"),
        )
    },
    "a request of an unknown process": _row(
        _unknown_process,
        "explain b",
        "attempt 1 was rejected at 2026-09-21 14:13:20 UTC (UnknownProcess): no such.",
        "-> slotkeeper process add typo --limit 1 --target JOB_OR_ARN",
        "-> slotkeeper failed redrive b --process typo",
    ),
    "a request of a process that was unknown, and exists now": _row(
        _process_added_later, "explain b", "-> slotkeeper failed redrive b --process typo", never=("process add",)
    ),
}

_SEVERAL = {
    "another request was sent with the id": _row(
        _reused,
        "explain a",
        "a in sample: queued",
        "a in sample: rejected",
        "(RequestIdReused): request_id 'a' is already used by another request",
        "-> slotkeeper request submit --process sample --request-id A_NEW_ID",
    ),
    "two callers wait for requests of one id": _row(
        _of_two_callers,
        "explain a",
        *("a in sample: queued  {second}", "a in sample: succeeded  {first}"),
        never=("tttt", "uuuu"),
    ),
    "the execution of a request with a caller is given": _row(
        _of_two_callers, "explain {second}", "a in sample: queued", "{second}", never=("{first}",)
    ),
}

_NEW = {
    "a process with queued requests: what keeps a new request or lease from starting": _row(
        _behind_a,
        "explain --process sample",
        "a new request of sample:",
        "it would be number 2 in the queue",
        "behind b, which is next; 1 of 1 slot in use",
        "held by a  RUNNING for 1 min",
        *("a lease of sample:", "- behind b, which is next", "- 1 of 1 slot in use"),
        shows={"position": 2, "lease_reasons.0.condition": "queue", "reasons.1.condition": "slots", "queued": 1},
    ),
    "a process with free slots": _row(
        lambda _: None,
        "explain --process sample",
        *("a new request of sample:", "nothing keeps it from starting"),
        never=("a lease of",),
    ),
    "a process with free slots, and requests that were not accepted": _row(
        lambda operator: operator.send("c") and None,
        "explain --process sample",
        *("nothing that was read keeps it from starting", "Not read: about 1 message of RequestQueue"),
        never=("nothing keeps",),
    ),
    "a process with free slots, while no function receives requests": _row(
        _sent_while_disabled,
        "explain --process sample",
        _DISABLED.format("RequestQueue"),
        f"-> {_ENABLE}",
        never=("keeps it from starting",),
    ),
    "a process whose item is malformed": _row(
        _malformed,
        "explain --process sample",
        *("the item of process sample is malformed", "-> slotkeeper process repair sample", "Not read: SlotTable"),
        never=("nothing keeps it",),
    ),
}

SITUATIONS = {**_QUEUED, **_NOT_FOUND, **_STARTED, **_ENDED, **_SEVERAL, **_NEW}
