"""Facts of a healthy stack for the doctor's checks, and the findings of a check over changed facts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from slotkeeper import __version__
from slotkeeper.slots.process import Process
from slotkeeper.slots.queued import Queued
from slotkeeper.slots.rows import Listed, QueuedRow
from slotkeeper_cli.doctor.facts import FunctionSettings, LedgerRows, RecursionSetting, TableSettings, due
from slotkeeper_cli.doctor.health_checks import Finding
from slotkeeper_cli.process_queue import ProcessQueue

NOW = 1_790_000_000.0


def process(**changes: Any) -> Process:
    whole: dict[str, Any] = {
        "name": "p",
        "slot_limit": 3,
        "slots_in_use": 0,
        "holders": {},
        "paused": False,
        "target": "job",
    }
    return Process(**{**whole, **changes})


def queued(request_id: str = "first", **fields: Any) -> QueuedRow:
    """A queued request that was sent five minutes ago."""
    return QueuedRow(Queued(f"p-{request_id}", f"1#{request_id}", **fields), request_id, "normal", NOW - 300)


def with_queue(of: Any, *rows: QueuedRow, **listed: Any) -> dict[str, Any]:
    """The facts of one process, also of a malformed one, with its queue."""
    queue = ProcessQueue(of, Listed(list(rows), **listed), NOW)
    known = {"processes": [of]} if isinstance(of, Process) else {"processes": [], "malformed": [of]}
    return known | {"queued": {queue.name: queue}, "idle": lambda: due([queue])}


def mapping(**changes: Any) -> dict[str, Any]:
    return {
        "UUID": "uuid",
        "State": "Enabled",
        "BatchSize": 1,
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        **changes,
    }


def queue(name: str, visibility: int, dead: str = "", receives: int = 1000, **more: str) -> dict[str, str]:
    policy = {"deadLetterTargetArn": f"arn:{dead}", "maxReceiveCount": receives}
    return {
        "QueueArn": f"arn:{name}",
        "VisibilityTimeout": str(visibility),
        **({"RedrivePolicy": json.dumps(policy)} if dead else {}),
        **more,
    }


WHOLE: dict[str, Any] = {
    "now": NOW,
    "not_deployed": [],
    "stack_status": "UPDATE_COMPLETE",
    "stack_version": __version__,
    "stack_age": 30 * 86_400.0,
    "parameters": {
        "WorkTimeoutMinutes": "480",
        "GraceSeconds": "120",
        "WorkerConcurrency": "3",
        "StarterConcurrency": "10",
    },
    **with_queue(process()),
    "malformed": [],
    "stranded": [],
    "unpublished": [],
    "jobs": {"job": {"MaxRetries": 0, "Timeout": 480, "ExecutionProperty": {"MaxConcurrentRuns": 10}}},
    "run_seconds": {"job": None},
    "allowed_jobs": {"job"},
    "machines": {},
    "allowed_machines": set(),
    "key": "",
    "held": [],
    "unheld_runs": [],
    "queues": {
        "RequestQueue": queue("RequestQueue", 180, "RequestDeadLetterQueue", 20),
        "DispatchQueue": queue("DispatchQueue", 180),
        "EndingQueue": queue("EndingQueue", 360),
        "RequestDeadLetterQueue": queue("RequestDeadLetterQueue", 30),
        "WorkQueue": queue("WorkQueue", 720, "WorkDeadLetterQueue"),
        "WorkDeadLetterQueue": queue("WorkDeadLetterQueue", 30),
    },
    "functions": {
        "StarterFunction": FunctionSettings("StarterFunction", 30, None),
        "EndingFunction": FunctionSettings("EndingFunction", 60, None),
        "WorkerFunction": FunctionSettings("WorkerFunction", 120, 5),
    },
    "unreserved_concurrency": 10,
    "mappings": {
        "RequestQueue": [mapping(BatchSize=10, ScalingConfig={"MaximumConcurrency": 10})],
        "DispatchQueue": [mapping(BatchSize=10, ScalingConfig={"MaximumConcurrency": 10})],
        "EndingQueue": [mapping(BatchSize=10, ScalingConfig={"MaximumConcurrency": 10})],
        "WorkQueue": [mapping(ScalingConfig={"MaximumConcurrency": 3})],
    },
    "recursion": [
        RecursionSetting("WorkerFunction", "Allow", "Allow"),
        RecursionSetting("Starter", "Terminate", "Terminate"),
    ],
    "tables": {"Ledger": 2 * (TableSettings(expires=True, recoverable=True),), "Plain": 2 * (TableSettings(),)},
    "rules": {"JanitorFunctionRound": "ENABLED"},
    "template": {},
    "alarms": [{"LogicalId": "StarterErrorAlarm", "StateValue": "OK", "ActionsEnabled": True}],
    "topic": {},
    "subscriptions": [{"SubscriptionArn": "arn:aws:sns:...:1", "Endpoint": "us@example.com"}],
    "retry_policy": "{}",
    "downstreams": {},
    "rows": LedgerRows((), all_of_them=True),
}


def whole(**changes: Any) -> dict[str, Any]:
    """The facts of a healthy stack, with changes. Nothing is queued, unless the changes have a queue."""
    made = {**WHOLE, **changes}
    if "queued" not in changes:
        queues = (ProcessQueue(each, Listed(), NOW) for each in (*made["processes"], *made["malformed"]))
        made["queued"] = {queue.name: queue for queue in queues}
    return made


def facts(**changes: Any) -> Any:
    """The same as an object."""
    return SimpleNamespace(**whole(**changes))


def seen(check: Callable[[Any], Iterable[Finding]], **changes: Any) -> list[tuple[str, str]]:
    """The level and text of each finding over the facts of a healthy stack with changes."""
    findings = list(check(facts(**changes)))
    assert all(finding.do for finding in findings)
    return [(finding.level, finding.saw) for finding in findings]


def levels(check: Callable[[Any], Iterable[Finding]], **changes: Any) -> list[str]:
    return [level for level, _ in seen(check, **changes)]
