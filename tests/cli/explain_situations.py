"""What `slotkeeper explain`, which is also `slotkeeper request show`, answers about requests and leases."""

from __future__ import annotations

import json
from functools import partial

from slotkeeper.slots.lost_requests import LostRequests
from slotkeeper.slots.request import execution_name
from slotkeeper.slots.targets import execution_arn
from tests.cli.account_contents import NOW, edit, fail, job_run, move_by_sqs, send_dead_letter
from tests.cli.operator_account import Operator
from tests.cli.situations import Names, Situation


def _behind_a(operator: Operator) -> Names:
    return {"a": operator.hold("a"), "b": operator.wait("b")}


def _with_history(operator: Operator) -> Names:
    """Six executions of the process have ended."""
    for number in range(6):
        _ended(operator, f"old{number}")
    return _behind_a(operator)


def _disabled(operator: Operator) -> Names:
    operator.event_source = "Disabled"
    return _behind_a(operator)


def _woken_while_disabled(operator: Operator) -> None:
    """Nothing but the event source keeps b from starting."""
    operator.event_source = "Disabled"
    a = operator.hold("a")
    operator.wait("b")
    operator.release(a)


def _many_reasons(operator: Operator) -> None:
    """A paused process whose counter is too high, with requests of all priorities: one of them is too heavy."""
    operator.processes.set_limit("sample", 6)
    operator.hold("a", weight=4)
    operator.wait("low one", "sample", "low", weight=3)
    operator.wait("normal one", weight=5)
    operator.wait("urgent", "sample", "high", weight=6)
    operator.processes.pause("sample")
    edit(operator, "slots_in_use", {"N": "5"})


def _blocked(operator: Operator) -> None:
    operator.hold("a")
    operator.processes.set_limit("sample", 6)
    operator.wait("heavy", weight=6)
    operator.processes.set_limit("sample", 5)


def _malformed(operator: Operator) -> Names:
    """A limit stored as a text; request a runs."""
    names = {"a": operator.hold("a")}
    operator.send("b")
    edit(operator, "slot_limit", {"S": "1"})
    return names


def _queued(operator: Operator) -> None:
    _behind_a(operator)
    operator.send("c")


def _removed(operator: Operator) -> None:
    operator.processes.create("gone", 1, "sample-job")
    operator.send("b", "gone")
    assert operator.run("process", "remove", "gone", "--yes").exit_code == 0


def _running(operator: Operator) -> Names:
    name = operator.hold("a")
    return {"a": name, "run": operator.run_glue(name)}


def _stopped(operator: Operator) -> Names:
    names = _running(operator)
    operator.stop(names["a"])
    return names


def _ended(operator: Operator, request_id: str = "a") -> None:
    """Let a request run and be aborted."""
    operator.stop(_released(operator, request_id))


def _arn(operator: Operator, execution: str) -> str:
    return execution_arn(operator.outputs["WorkflowArn"], execution)


def _released(operator: Operator, request_id: str = "a", process: str = "sample") -> str:
    """Let a request run and release its slot."""
    name = operator.hold(request_id, process)
    operator.release(name, process)
    return name


def _succeeded(operator: Operator) -> Names:
    name = _released(operator)
    run = operator.run_glue(name, "SUCCEEDED")
    operator.end(_arn(operator, name), "SUCCEEDED")
    return {"run": run}


def _child_succeeded(operator: Operator) -> Names:
    machine = operator.machine("load")
    name = _released(operator, process="load")
    child = operator.run_child(name, machine)
    operator.end(child, "SUCCEEDED", output='{"rows": 31}')
    operator.end(_arn(operator, name), "SUCCEEDED")
    return {"child": child}


def _returned(operator: Operator) -> Names:
    """The janitor reclaimed the reservation of a slow starter, whose workflow then returned the request."""
    operator.end(_arn(operator, _released(operator)), "FAILED", error="RequestReturned")
    operator.send("b")
    return {"again": execution_name("sample", "a", 2)}


def _failed(operator: Operator) -> Names:
    cause = f"States.TaskFailed: {job_run('no such month')}"
    operator.end(_arn(operator, _released(operator)), "FAILED", error="RequestFailed", cause=cause)
    return {"a": fail(operator, cause=job_run("no such month"))}


def _failed_message_hidden(operator: Operator) -> None:
    _failed(operator)
    operator.sqs.receive_message(QueueUrl=operator.outputs["FailedRequestQueueUrl"], VisibilityTimeout=600)


def _redriven(operator: Operator) -> Names:
    _failed(operator)
    assert operator.run("dlq", "redrive", "failed", "--id", "a", "--yes").exit_code == 0
    return {"again": execution_name("sample", "a", 2)}


def _redriven_while_its_slot_settles(operator: Operator) -> Names:
    """Attempt 1 was aborted and keeps its slot; its request was kept, and redriven."""
    name = operator.hold("a")
    operator.stop(name)
    fail(operator)
    assert operator.run("dlq", "redrive", "failed", "--id", "a", "--yes").exit_code == 0
    return {"again": execution_name("sample", "a", 2)}


def _redriven_and_purged(operator: Operator) -> None:
    _redriven(operator)
    operator.sqs.purge_queue(QueueUrl=operator.outputs["RequestQueueUrl"])


def _dead_lettered(code: str, operator: Operator) -> None:
    send_dead_letter(operator, code=code)


def _cancelled(operator: Operator) -> None:
    operator.send("a")
    assert operator.run("request", "cancel", "a", "--process", "sample", "--yes").exit_code == 0


def _purged(operator: Operator) -> Names:
    names = _behind_a(operator)
    operator.sqs.purge_queue(QueueUrl=operator.outputs["RequestQueueUrl"])
    return names


def _lost(operator: Operator) -> None:
    """The message of a registered request was deleted, and the janitor has noted it."""
    operator.hold("a")
    operator.wait("b", priority="high")
    process = operator.process()
    assert LostRequests(operator.dynamodb, operator.outputs["SlotTableName"]).lose(
        process, process.waiting["high"], NOW + 30
    )


def _cleared(operator: Operator) -> None:
    """A wake found that the message of a registered request is not hidden any more."""
    operator.processes.pause("sample")
    operator.wait("b")
    operator.processes.resume("sample")
    operator.slots.clear("sample", operator.process().waiting["normal"], NOW + 30)


def _lease(until: int, operator: Operator) -> None:
    operator.lease("lease-1", until)


def _reserved(operator: Operator) -> None:
    operator.hold("a", started=False, confirmed=False)


def _moved(operator: Operator) -> None:
    """24 requests that SQS itself moved, of which ten can be read."""
    for number in range(24):
        move_by_sqs(operator, json.dumps({"process": "sample", "request_id": f"r{number}"}))


def _without_audit_log(operator: Operator) -> None:
    operator.logs.delete_log_group(logGroupName=operator.outputs["AuditLogGroupName"])


SITUATIONS = {
    "a request waits for the only slot": Situation(
        _behind_a,
        "explain b",
        says=(
            "b in sample: waiting",
            "it has waited for 1 min, as the first request of its priority: 1 of 1 slot in use.",
            "Its message is hidden until a wake",
            "a  RUNNING for 1 min  {a}",
            "expected start: not known: 0 recent executions of the process, 5 are needed",
            "-> slotkeeper request cancel b --process sample",
            "attempt 1: waiting  {b}",
        ),
        shows={
            "state": "waiting",
            "found.0.conditions.0.condition": "slots",
            "found.0.conditions.0.slot_limit": 1,
            "found.0.holders.0.request_id": "a",
            "found.0.expected_start.samples": 0,
        },
    ),
    "a holder has run for longer than each recent execution": Situation(
        _with_history,
        "explain b",
        says=("expected start: not known: the holders have run for longer than each recent execution (6 recent",),
        shows={"found.0.expected_start.samples": 6, "found.0.expected_start.earliest": None},
    ),
    "the event source is disabled, and the slot is in use": Situation(
        _disabled,
        "explain b",
        says=(
            "no function receives messages of the queue: its event source mapping is Disabled; 1 of 1 slot in use",
            "-> aws lambda update-event-source-mapping --enabled --uuid mapping-1",
        ),
        never=("expected start", "within seconds"),
    ),
    "the event source is disabled, and a slot is free": Situation(
        _woken_while_disabled,
        "explain b",
        says=("as the first request of its priority: no function receives messages of the queue",),
        never=("is being woken", "within a minute"),
    ),
    "the event source is disabled, and a request was not received": Situation(
        _disabled,
        "explain c",
        says=("c: perhaps queued", "no function receives messages of the queue"),
        never=("within seconds",),
    ),
    "several reasons at the same time": Situation(
        _many_reasons,
        "explain 'low one'",
        says=(
            "low one in sample: waiting",
            "- the process is paused",
            "- weight 3 does not fit: 5 of 6 in use by 1 holder, by a counter that is 1 too high",
            "- behind the higher priority high: urgent",
            "-> slotkeeper process resume sample",
            "-> slotkeeper stack reconcile sample",
            "before it: urgent (priority high, weight 6), waiting for 1 min",
            "before it: normal one (weight 5), waiting for 1 min",
        ),
        shows={
            "found.0.conditions.0.condition": "pause",
            "found.0.conditions.1.held_weight": 4,
            "found.0.conditions.2.ahead.1": "normal one",
        },
    ),
    "a request is heavier than the limit": Situation(
        _blocked,
        "explain heavy",
        says=("blocked: weight 6 above the limit 5", "-> slotkeeper process set-limit sample 6"),
        never=("expected start",),
    ),
    "a request behind the first one was not received": Situation(
        _queued,
        "explain c",
        says=(
            "c: perhaps queued. It was found nowhere.",
            "- it is queued: RequestQueue has about 3 messages of all processes, and cannot be searched",
            "- it was never sent",
            "If it is queued in sample:",
            "perhaps queued in sample: 1 of 1 slot in use; behind the first request of its priority: b",
            "a  RUNNING for 1 min",
            "registered: b, waiting for 1 min: 1 of 1 slot in use",
        ),
        shows={"state": "perhaps queued", "queued_messages": 3, "queues.0.conditions.1.condition": "queue"},
    ),
    "a request was never sent": Situation(
        lambda _: None,
        "explain typo",
        says=(
            "No request typo found. Possible reasons:",
            "- it was never sent",
            "no request typo found, and no message",
        ),
        never=("sample-",),
        exit_code=4,
    ),
    "a request was never sent, and something could not be read": Situation(
        _without_audit_log,
        "explain typo",
        says=(
            "No request typo found",
            "Not read: AuditLogGroup: FilterLogEvents failed with ResourceNotFoundException",
            "no request typo found in what could be read",
        ),
        exit_code=1,
    ),
    "a request may be one of the dead letters that cannot be read": Situation(
        _moved,
        "explain r20",
        says=(
            "it is one of about 14 messages of RequestDeadLetterQueue that could not be read",
            "Not read: about 14 messages of RequestDeadLetterQueue: SQS returns the first ten of message group sample",
        ),
        exit_code=1,
    ),
    "the item of a process is malformed, and a request of it runs": Situation(
        _malformed,
        "explain a",
        says=(
            "a in sample: running",
            "its execution runs. Whether it holds its slot could not be read.",
            "attempt 1: running  {a}",
            "Not read: SlotTable: the item of process sample is malformed",
            "slotkeeper process repair sample",
        ),
    ),
    "the item of a process is malformed, and a request of it is queued": Situation(
        _malformed,
        "explain b",
        says=(
            "b: perhaps queued",
            "the item of process sample is malformed, so no request of it starts",
            "-> slotkeeper process repair sample",
        ),
        never=("There are no processes", "a slot is free"),
    ),
    "a process was removed while a request was queued": Situation(
        _removed,
        "explain b",
        says=("it is a request of process gone, which was removed at", "dead-lettered as UnknownProcess"),
    ),
    "the request of a removed process was dead-lettered": Situation(
        lambda operator: send_dead_letter(operator, '{"process": "gone", "request_id": "b"}', "UnknownProcess"),
        "explain b",
        says=(
            "b in gone: dead-lettered",
            "It is kept in RequestDeadLetterQueue (UnknownProcess) for 14 days. Now there is no process 'gone'.",
            "-> slotkeeper process add gone --limit 1 --target JOB_OR_ARN",
            "-> slotkeeper dlq redrive request --id b",
        ),
    ),
    "a request runs": Situation(
        _running,
        "explain a",
        says=(
            "a in sample: running",
            "it has held a slot for 1 min, and its Glue run {run} is RUNNING.",
            "-> slotkeeper request cancel a --process sample --stop",
            "glue run: RUNNING {run}",
        ),
    ),
    "a request holds a slot, and its workflow has just been started": Situation(
        _reserved,
        "explain a",
        says=("a in sample: starting", "it reserved a slot 1 min ago, and its workflow has not confirmed it."),
        never=("has probably died",),
    ),
    "a starter died between the reservation and the start": Situation(
        _reserved,
        "explain a",
        says=("it reserved a slot 3 min ago", "its starter has probably died. The janitor frees the slot"),
        at=NOW + 180,
    ),
    "an aborted execution holds its slot": Situation(
        _stopped,
        "explain a",
        says=("a in sample: stopped", "its execution has ended (ABORTED), and its slot will be free by about"),
    ),
    "a request has released its slot, and its execution has not ended": Situation(
        lambda operator: {"a": _released(operator)},
        "explain a",
        says=("a in sample: finishing", "it has released its slot, and its execution is about to end."),
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
    ),
    "a request of a state machine succeeded": Situation(
        _child_succeeded,
        "explain a",
        says=("a in load: succeeded", ": child execution {child} SUCCEEDED.", 'output: {"rows": 31}'),
    ),
    "a request was returned to the queue": Situation(
        _returned,
        "explain a",
        says=(
            "a in sample: queued",
            "the workflow of the attempt before, which had lost its slot, sent attempt 2 at ",
            "attempt 1: returned",
            "attempt 2: queued  {again}",
        ),
    ),
    "a request failed": Situation(
        _failed,
        "explain a",
        says=(
            "a in sample: failed",
            "attempt 1 failed (FAILED): no such month. It is kept in FailedRequestQueue (Glue.Failed) for 14 days.",
            "-> slotkeeper dlq redrive failed --id a",
        ),
        shows={
            "found.0.attempts.0.reason": "no such month",
            "found.0.attempts.0.dead_letter.queue": "FailedRequestQueue",
        },
    ),
    "a request failed, and its message is gone": Situation(
        _ended,
        "explain a",
        says=(
            "Its message is not in FailedRequestQueue",
            "Attempt 2 may be one of about 1 message on RequestQueue",
            """-> printf %s '{"process": "sample", "request_id": "a", "priority": "normal", "attempt": 2}' | slot""",
        ),
    ),
    "a request failed, and another command is reading the messages": Situation(
        _failed_message_hidden,
        "explain a",
        says=(
            "attempt 1 failed (FAILED)",
            "Its message was not found in the part of FailedRequestQueue that could be read.",
            "Not read: about 1 message of FailedRequestQueue: another command is reading them",
        ),
        never=("is not in FailedRequestQueue", "request submit"),
    ),
    "a failed request was redriven": Situation(
        _redriven,
        "explain a",
        says=(
            "a in sample: queued",
            "a redrive by ",
            "sent attempt 2 at",
            "it has not been received since",
            "attempt 1: failed",
            "attempt 2: queued  {again}",
        ),
        shows={"found.0.attempts.1.state": "queued", "found.0.attempts.1.execution": "{again}"},
    ),
    "a request was redriven while the slot of its first attempt settles": Situation(
        _redriven_while_its_slot_settles,
        "explain a",
        says=("sent attempt 2 at", "attempt 1: stopped", "attempt 2: queued  {again}"),
    ),
    "a redriven request is cancelled: its queued attempt, not the one after it": Situation(
        _redriven,
        "request cancel a --yes",
        says=("a (attempt 2, {again}) is cancelled",),
        never=("if it was redriven", "--attempt 3"),
    ),
    "a request was redriven, and RequestQueue was purged": Situation(
        _redriven_and_purged,
        "explain a",
        says=("RequestQueue has no message: it was deleted or purged", '"attempt": 2}'),
    ),
    "a request was cancelled, and not received since": Situation(
        _cancelled,
        "explain a",
        says=("a in sample: cancelled", "it was cancelled by ", "with code Cancelled when it is received"),
    ),
    **{
        f"a request was dead-lettered as {code}": Situation(
            partial(_dead_lettered, code),
            "explain a",
            says=("a in sample: dead-lettered", f"because of {code}. It is kept in RequestDeadLetterQueue", step),
        )
        for code, step in {
            "Expired": "-> slotkeeper dlq redrive request --id a",
            "Cancelled": "-> slotkeeper dlq redrive request --id a",
            "RequestIdReused": "-> slotkeeper request submit --process sample --request-id A_NEW_ID",
            "InvalidRequest": "-> slotkeeper dlq show request",
        }.items()
    },
    "a message is no request: no execution was started from it": Situation(
        lambda operator: send_dead_letter(operator, "not JSON", "InvalidRequest", "m-bad"),
        "explain m-bad",
        says=("m-bad in sample: dead-lettered", "because of InvalidRequest. It is kept in RequestDeadLetterQueue"),
        never=("sample-",),
        shows={"found.0.attempts.0.execution": None, "found.0.attempts.0.dead_letter.execution": None},
    ),
    "RequestQueue was purged while a request waited": Situation(
        _purged,
        "explain b",
        says=(
            "b in sample: waiting",
            "RequestQueue has no message: it was deleted or purged, unless SQS's approximate count lags",
            "the janitor names it as lost within some minutes",
        ),
        never=("is hidden until", "expected start"),
        shows={"found.0.conditions.0.condition": "message"},
    ),
    "the message of a waiting request was deleted": Situation(
        _lost,
        "explain b",
        says=(
            "b in sample: lost",
            "its message had left RequestQueue at",
            "-> slotkeeper request submit --process sample --request-id b --priority high",
        ),
        never=("never sent",),
    ),
    "a wake found a message visible": Situation(
        _cleared,
        "explain b",
        says=("b in sample: queued", "its message was not hidden any more at"),
        never=("never sent",),
    ),
    "a process with waiting requests: what keeps a new request or lease from starting": Situation(
        _behind_a,
        "explain --process sample",
        says=(
            "a new request of sample:",
            "1 of 1 slot in use; behind the first request of its priority: b",
            "a  RUNNING for 1 min",
            "registered: b, waiting for 1 min: 1 of 1 slot in use",
            "a lease of sample:",
            "- 1 of 1 slot in use",
            "- behind the waiting request b",
        ),
        shows={"lease_conditions.1.condition": "queue", "conditions.0.condition": "slots"},
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
    "a process that does not exist": Situation(
        lambda _: None,
        "explain --process typo",
        says=("there is no process 'typo'. The processes are: sample",),
        exit_code=4,
    ),
    "neither a request nor a process is given": Situation(
        lambda _: None,
        "explain",
        says=("give the id of a request or the name of a lease, or --process alone",),
        exit_code=2,
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
