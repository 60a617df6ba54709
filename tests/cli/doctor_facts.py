"""Facts of a healthy stack for the doctor's checks, and the findings of a check over changed facts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from slotkeeper import __version__
from slotkeeper.slots.process import Process, WaitingRequest
from slotkeeper.slots.request import Priority
from slotkeeper_cli.doctor.facts import FunctionSettings, LedgerRows, RecursionSetting, TableSettings
from slotkeeper_cli.doctor.health_checks import Finding

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


def waiting_request(priority: Priority = "normal", **changes: Any) -> WaitingRequest:
    """A registration that is five minutes old."""
    whole: dict[str, Any] = {
        "priority": priority,
        "receipt_handle": "handle",
        "sequence": "1",
        "receives": 1,
        "weight": 1,
        "since": int(NOW) - 300,
        "execution": "p-first",
        "request_id": "first",
        "hidden_until": int(NOW) - 75,
    }
    return WaitingRequest(**{**whole, **changes})


def mapping(**changes: Any) -> dict[str, Any]:
    return {
        "UUID": "uuid",
        "State": "Enabled",
        "BatchSize": 1,
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        **changes,
    }


def queue(name: str, visibility: int, dead: str = "", **more: str) -> dict[str, str]:
    policy = {"deadLetterTargetArn": f"arn:{dead}", "maxReceiveCount": 1000}
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
    "parameters": {"WorkTimeoutMinutes": "480", "GraceSeconds": "120", "WorkerConcurrency": "3"},
    "processes": [process()],
    "malformed": [],
    "jobs": {"job": {"MaxRetries": 0, "Timeout": 480, "ExecutionProperty": {"MaxConcurrentRuns": 10}}},
    "run_seconds": {"job": None},
    "allowed_jobs": {"job"},
    "machines": {},
    "allowed_machines": set(),
    "key": "",
    "held": [],
    "unheld_runs": [],
    "execution_status": lambda _name: "",
    "queues": {
        "RequestQueue": queue("RequestQueue", 180, "RequestDeadLetterQueue"),
        "RequestDeadLetterQueue": queue("RequestDeadLetterQueue", 30),
        "WorkQueue": queue("WorkQueue", 720, "WorkDeadLetterQueue"),
        "WorkDeadLetterQueue": queue("WorkDeadLetterQueue", 30),
    },
    "functions": {
        "StarterFunction": FunctionSettings("StarterFunction", 30, None),
        "WorkerFunction": FunctionSettings("WorkerFunction", 120, 5),
    },
    "unreserved_concurrency": 10,
    "mappings": {"RequestQueue": [mapping()], "WorkQueue": [mapping(ScalingConfig={"MaximumConcurrency": 3})]},
    "recursion": [
        RecursionSetting("WorkerFunction", "Allow", "Allow"),
        RecursionSetting("Starter", "Terminate", "Terminate"),
    ],
    "tables": [TableSettings("Ledger", True, True, True, True), TableSettings("Slots", False, False, True, True)],
    "rules": {"JanitorFunctionRound": "ENABLED"},
    "template": {},
    "alarms": [{"LogicalId": "StarterErrorAlarm", "StateValue": "OK", "ActionsEnabled": True}],
    "topic": {},
    "subscriptions": [{"SubscriptionArn": "arn:aws:sns:...:1", "Endpoint": "us@example.com"}],
    "retry_policy": "{}",
    "downstreams": {},
    "rows": LedgerRows((), all_of_them=True),
}


def facts(**changes: Any) -> Any:
    """The facts of a healthy stack, with changes."""
    return SimpleNamespace(**{**WHOLE, **changes})


def seen(check: Callable[[Any], Iterable[Finding]], **changes: Any) -> list[tuple[str, str]]:
    """The level and text of each finding over the facts of a healthy stack with changes."""
    findings = list(check(facts(**changes)))
    assert all(finding.do for finding in findings)
    return [(finding.level, finding.saw) for finding in findings]


def levels(check: Callable[[Any], Iterable[Finding]], **changes: Any) -> list[str]:
    return [level for level, _ in seen(check, **changes)]
