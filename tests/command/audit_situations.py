"""What `slotkeeper audit` answers from the records of an account."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from slotkeeper.aws.dynamodb import Item, number
from slotkeeper.slots.queued import place_of
from slotkeeper.slots.request import PRIORITIES, execution_name
from slotkeeper.slots.request_table import State, granted_as
from slotkeeper.slots.work import MARKER
from tests.command.account_contents import edit
from tests.command.operator_account import NOW, Operator
from tests.command.situations import Names, Situation

HOUR = NOW + 3600
ERROR = {"Code": "AccessDeniedException", "Message": "not authorized"}


def ran(
    operator: Operator, request_id: str, start: float, end: float | None, status: str = "SUCCEEDED", **fields: Any
) -> str:
    """Record an execution, in seconds after NOW, its Glue run, and its row. The run ends a tenth of a second before it.

    Args:
        fields: `attempt`, `process`, `run` (whether there is a Glue run), and those of `add_row`.
    """
    own: dict[str, Any] = {"attempt": 1, "run": True, "process": "sample", **fields}
    name = execution_name(own["process"], request_id, own["attempt"])
    arn = operator.stepfunctions.start_execution(
        stateMachineArn=operator.outputs["WorkflowArn"], name=name, input="{}"
    )["executionArn"]
    _record(operator, arn, start, end, status)
    state: State = "STARTED" if end is None else "SUCCEEDED" if status == "SUCCEEDED" else "FAILED"
    given: dict[str, Any] = {"state": state, "sent": start - 0.2, "started": start + 0.01, "ended": end} | own
    add_row(operator, request_id, **{"granted": granted_as(10**9 + round(1000 * start), 0), **given})
    if own["run"]:
        run_state = "RUNNING" if end is None else status if status == "SUCCEEDED" else "STOPPED"
        times = {"started": NOW + start + 0.1} | ({} if end is None else {"ended": NOW + end - 0.1})
        operator.aws.run_job("sample-job", run_state, {MARKER: name}, **times)
    return name


def add_row(operator: Operator, request_id: str, *, sent: float, state: State = "QUEUED", **fields: Any) -> str:
    """Write a request's row; its times are in seconds after NOW. Return the name of its execution.

    Args:
        fields: attributes of the row: process, attempt, priority, weight, started, ended, granted, code and reason; and
            the key of its place.
    """
    own = {"process": "sample", "attempt": 1, "priority": "normal", **fields}
    name = execution_name(own["process"], request_id, own["attempt"])
    place = place_of(PRIORITIES.index(own["priority"]), NOW + sent, "0", own.get("key", ""))
    row: Item = {
        "process_name": {"S": own["process"]},
        "execution": {"S": name},
        "state": {"S": state},
        "request_id": {"S": request_id},
        "attempt": number(own["attempt"]),
        "priority": {"S": own["priority"]},
        "sent": number(NOW + sent),
        "placed": {"S": place},
    }
    row |= {"place": {"S": place}} if state == "QUEUED" else {}
    row |= {"open": number(NOW + sent)} if state in ("QUEUED", "STARTED") else {}
    row |= {each: number(NOW + own[each]) for each in ("started", "ended") if own.get(each) is not None}
    row |= {each: {"S": own[each]} for each in ("granted", "code", "reason") if own.get(each)}
    row |= {"weight": number(own["weight"])} if own.get("weight") else {}
    operator.dynamodb.put_item(TableName=operator.outputs["RequestTableName"], Item=row)
    return name


def malform_row(operator: Operator, execution: str) -> Names:
    """Write a row with a state that there is not; return its name as `row`."""
    key = {"process_name": {"S": "sample"}, "execution": {"S": execution}}
    row: Item = {**key, "state": {"S": "ODD"}, "ended": number(NOW + 20)}
    operator.dynamodb.put_item(TableName=operator.outputs["RequestTableName"], Item=row)
    return {"row": execution}


def _record(operator: Operator, arn: str, start: float, end: float | None, status: str) -> None:
    """Let an execution have run between two times, in seconds after NOW."""
    stopped = 0 if end is None else NOW + end
    operator.end(arn, "RUNNING" if end is None else status, started=NOW + start, stopped=stopped)


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(NOW + seconds, UTC)


def audited(operator: Operator, at: float, action: str, **fields: Any) -> None:
    """Write an audit line, in seconds after NOW."""
    group, moment = operator.outputs["AuditLogGroupName"], _at(at)
    line = {"action": action, "at": moment.isoformat(), "by": "arn:operator", "process": "sample"} | fields
    # CloudWatch Logs refuses events that are older than 14 days.
    event = {"timestamp": int(datetime.now(UTC).timestamp() * 1000), "message": json.dumps(line)}
    stream = f"{moment:%Y-%m-%d} {action} {at}"
    operator.logs.create_log_stream(logGroupName=group, logStreamName=stream)
    operator.logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=[event])


def _clean(operator: Operator) -> Names:
    """One slot: one request succeeded, one failed, one runs."""
    ran(operator, "a", 10.25, 20.25)
    ran(operator, "b", 21.25, 30.25, "FAILED", code="States.TaskFailed")
    ran(operator, "c", 3599.25, None)
    return {}


def _overlap(operator: Operator) -> Names:
    """A second request starts half a second before the Glue run of the first one ends."""
    return {"a": ran(operator, "a", 10.25, 20.25), "b": ran(operator, "b", 19.55, 30.25)}


def _children(second: float) -> Callable[[Operator], Names]:
    """Two child executions in one slot, of ten seconds, of which the first starts after 10.25 s."""

    def run(operator: Operator) -> Names:
        machine = operator.machine("orders")
        for request_id, start in (("a", 10.25), ("b", second)):
            name = ran(operator, request_id, start, start + 10.5, process="orders", run=False)
            _record(operator, operator.run_child(name, machine), start + 0.2, start + 10, "SUCCEEDED")
        return {}

    return run


def _forced(operator: Operator) -> Names:
    audited(operator, 15, "holder release", forced=True)
    return _overlap(operator)


def _redriven(operator: Operator) -> Names:
    """An operator redrove a failed request; its second attempt is queued."""
    ran(operator, "a", 10.25, 20.25, "FAILED", state="REDRIVEN")
    add_row(operator, "a", sent=3590, attempt=2)
    return {}


def _dead_for_days(operator: Operator) -> Names:
    """The slot of an execution that ended before the period is held."""
    name = operator.hold("a", started=False)
    ran(operator, "a", 10.25, 20.25, "ABORTED")
    return {"held": name}


def _malformed(operator: Operator) -> Names:
    edit(operator, "slot_limit", {"S": "three"})
    return _clean(operator)


def _with_keys(operator: Operator) -> Names:
    operator.processes.set_key_limit("sample", 2)
    return {"a": ran(operator, "a", 10.25, 20.25, key="acme")}


_an_hour_later = partial(Situation, at=HOUR)

SITUATIONS = {
    "the limit held": _an_hour_later(
        _clean,
        "audit sample",
        says=(
            "holds      limit      never more weight at work than the limit then in force",
            "sample: at most 1 of 1 (Glue runs)",
            "holds      accounted",
            "1 failed, 1 started, 1 succeeded",
            "holds      once",
            "holds      order",
            "3 recorded grants",
            "sample            3  1 SUCCEEDED, 1 FAILED, 1 RUNNING",
        ),
        shows={"checks.0.result": "holds", "checks.0.numbers.processes.sample.Glue run.weight": 1},
    ),
    "the limit of keys held": _an_hour_later(
        _with_keys, "audit", says=("holds      keys", 'sample, key "acme": at most 1 of 2; 1 key with a limit')
    ),
    "two ran for half a second in one slot": _an_hour_later(
        _overlap,
        "audit",
        says=("fails      limit", "1 violation; sample: at most 2 of 1", "- sample: 2 of 1 at", "{a}, {b}"),
        never=("fails      once", "fails      accounted"),
        shows={"checks.0.result": "fails"},
        exit_code=5,
    ),
    "two child executions ran in one slot": _an_hour_later(
        _children(19.75), "audit", says=("fails      limit", "- orders: 2 of 1 at", "by child executions"), exit_code=5
    ),
    "two ran after an operator's forced release": _an_hour_later(
        _forced, "audit", says=("fails      limit", "; after holder release at", "by arn:operator"), exit_code=5
    ),
    "a failed request was redriven": _an_hour_later(
        _redriven, "audit", says=("holds      accounted", "1 queued, 1 redriven")
    ),
    "a dead holder of an earlier period was not freed": _an_hour_later(
        _dead_for_days,
        "audit --since 30m",
        says=("fails      freed", "- sample: {held} ended at", "and still holds a slot"),
        never=("fails      accounted",),
        exit_code=5,
    ),
    "the item is malformed": _an_hour_later(
        _malformed,
        "audit sample",
        says=(
            "not shown  limit",
            "Not read: SlotTable: the item of process sample is malformed",
            "process repair sample",
        ),
        exit_code=1,
    ),
    "a row is malformed": _an_hour_later(
        lambda operator: malform_row(operator, ran(operator, "a", 10.25, 20.25)),
        "audit",
        says=(
            "not shown  limit",
            "Not read: RequestTable: 1 row is malformed: request {row}: state must be one of QUEUED",
        ),
        exit_code=1,
    ),
    "the work of an execution is in no record": _an_hour_later(
        lambda operator: {"a": ran(operator, "a", 10.25, 20.25), "b": ran(operator, "b", 21.25, 30.25, run=False)},
        "audit",
        says=(
            "not shown  limit",
            "sample: at most 1 of 1 (Glue runs); sample: the work of 1 execution was not found",
            "not shown  once",
        ),
    ),
    "nothing ran": _an_hour_later(
        lambda _: None, "audit --since 7d --until 1d", says=("not shown  limit", "nothing ran"), never=("holds",)
    ),
}
