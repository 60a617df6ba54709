"""The outcome of each sample event: answers, metrics, items, dead-letter messages and executions.

The names are those of the files in events/, whose README describes the outcomes. Those of a function that you may
replace are in functions/<function>/tests/expected_events.py.
"""

from __future__ import annotations

import json

from dev.emulator.chat_service import answer_to
from dev.emulator.environment import ROOT
from slotkeeper.slots.request import execution_name
from tests.deployed.runtime.runtime_outcomes import Expectation, Outcome, work_dead_lettered

(OF_REUSED_ID,) = json.loads((ROOT / "events" / "starter" / "reused_id.json").read_text())["Records"]


def _runs(request_id: str, attempt: int = 1) -> Expectation:
    name = execution_name("sample", request_id, attempt)
    return lambda outcome: (
        (outcome.failed_items, outcome.execution(name), outcome.state(name)) == (0, "RUNNING", "STARTED")
        and list(outcome.process("sample").holders) == [name]
    )


def _starts(request_id: str, attempt: int = 1) -> Expectation:
    runs = _runs(request_id, attempt)
    return lambda outcome: outcome.counted("RequestsAdmitted") == [1.0] and runs(outcome)


def _stays_queued(process: str, request_id: str, rings: int = 0) -> Expectation:
    name = execution_name(process, request_id, 1)
    return lambda outcome: (
        (outcome.failed_items, outcome.state(name), outcome.execution(name)) == (0, "QUEUED", "NONE")
        and outcome.delayed("DispatchQueue") == rings
        and not outcome.messages("RequestDeadLetterQueue")
    )


def _ends(process: str, request_id: str, end: str, suffix: str = "") -> Expectation:
    """It ends without a start, and EndingFunction is to publish that. `suffix`: of its row's name."""
    name = execution_name(process, request_id, 1) + suffix
    return lambda outcome: (
        (outcome.failed_items, outcome.state(name), outcome.is_published(name)) == (0, end, False)
        and outcome.endings() == [{"process": process, "executions": [name]}]
        and (bool(suffix) or outcome.execution(name) == "NONE")
        and not outcome.messages("RequestDeadLetterQueue")
    )


def _dead_letters(outcome: Outcome) -> bool:
    return (
        (outcome.failed_items, outcome.counted("RequestsDeadLettered")) == (0, [1.0])
        and outcome.codes("RequestDeadLetterQueue") == ["InvalidRequest"]
        and [each["refused"]["code"] for each in outcome.endings()] == ["InvalidRequest"]
    )


def _publishes(name: str, end: str, metric: str = "") -> Expectation:
    """The end of a request's row is published. `metric`: counts it."""
    return lambda outcome: (
        (outcome.failed_items, outcome.counted("EndingsHandled")) == (0, [1.0])
        and (outcome.state(name), outcome.is_published(name)) == (end, True)
        and (not metric or 1.0 in outcome.counted(metric))
    )


def _settles(request_id: str, code: str) -> Expectation:
    published = _publishes(execution_name("sample", request_id, 1), f"FAILED {code}", "RequestsFailed")
    return lambda outcome: outcome.counted("RequestsSettled") == [1.0] and published(outcome)


def _registered(limit: int, job: str, created: bool) -> Expectation:
    return lambda outcome: (
        (outcome.response["Status"], outcome.response["Data"]) == ("SUCCESS", {"Created": str(created).lower()})
        and (outcome.process("orders").slot_limit, outcome.process("orders").target) == (limit, job)
    )


def _new_token(outcome: Outcome) -> bool:
    return outcome.row("TokenTable", "chatbot")["generation"] == "1" and outcome.counted("TokenRefreshes") == [1.0]


def _refuses(status: int, code: str) -> Expectation:
    return lambda outcome: (
        (outcome.answer["statusCode"], outcome.code, outcome.counted("MessagesRefused")) == (status, code, [1.0])
    )


def _answers(outcome: Outcome) -> bool:
    body = json.loads(outcome.answer["body"])
    return (outcome.answer["statusCode"], body["answer"]) == (200, answer_to("When does the museum open?"))


EXPECTED: dict[str, Expectation] = {
    "starter/happy": _starts("2012-01"),
    "starter/redelivery": lambda outcome: not outcome.counted("RequestsAdmitted") and _runs("2012-01")(outcome),
    "starter/repeated": lambda outcome: outcome.counted("RequestsRepeated") == [1.0] and _runs("2012-01")(outcome),
    "starter/reused_id": _ends("sample", "2012-01", "REJECTED RequestIdReused", f"#{OF_REUSED_ID['messageId']}"),
    "starter/second_attempt": _starts("2012-01", 2),
    "starter/sent_again": _starts("2012-05", 2),
    "starter/urgent": lambda outcome: _starts("2012-04")(outcome) and outcome.process("sample").slots_in_use == 2,
    "starter/full": _stays_queued("full", "2012-01"),
    "starter/early": _stays_queued("early", "2012-05", rings=1),
    "starter/skipped": _ends("full", "2012-01", "SKIPPED Skipped"),
    "starter/too_late": _ends("sample", "2012-05", "TOO_LATE TooLate"),
    "starter/too_large": _ends("sample", "2012-06", "REJECTED TooLarge"),
    "starter/unknown_process": lambda outcome: (
        outcome.state(execution_name("unregistered", "2012-01", 1)) == "REJECTED UnknownProcess"
        and outcome.endings() == [{"process": "unregistered"}]
    ),
    "starter/malformed_process": lambda outcome: (
        _stays_queued("malformed", "2012-01")(outcome) and outcome.counted("StarterErrors") == [1.0]
    ),
    "starter/batch": lambda outcome: (
        _starts("2012-01")(outcome)
        and _dead_letters(outcome)
        and outcome.state(execution_name("full", "2012-01", 1)) == "QUEUED"
    ),
    "starter/not_json": _dead_letters,
    "starter/doorbell": _starts("2012-07"),
    "starter/timed_doorbell": _ends("full", "2012-07", "TOO_LATE TooLate"),
    "starter/not_a_doorbell": lambda outcome: (
        (outcome.failed_items, outcome.counted("StarterErrors")) == (0, [1.0])
        and not outcome.messages("RequestDeadLetterQueue")
    ),
    "janitor/scheduled_run": lambda outcome: (
        outcome.answer == {"RequestsUnpublished": 0, "BlockedRequests": 0, "StartsOverdue": 0}
        and outcome.counted("JanitorRuns") == [1.0]
        and outcome.state(execution_name("sample", "2012-07", 1)) == "STARTED"
    ),
    "ending/succeeded": _publishes(execution_name("sample", "2012-05", 1), "SUCCEEDED"),
    "ending/failed": _publishes(execution_name("sample", "2012-02", 1), "FAILED States.TaskFailed", "RequestsFailed"),
    "ending/aborted": _settles("2012-01", "ABORTED"),
    "ending/timed_out": _settles("2012-03", "TIMED_OUT"),
    "ending/slot_lost": lambda outcome: (
        outcome.failed_items == 0
        and outcome.state(execution_name("sample", "2012-04", 1)) == "RETURNED"
        and outcome.state(execution_name("sample", "2012-04", 2)) == "QUEUED"
        and {json.loads(each["body"])["process"] for each in outcome.messages("DispatchQueue")} == {"sample"}
    ),
    "ending/unknown_execution": lambda outcome: (outcome.failed_items, outcome.counted("EndingsHandled")) == (0, [1.0]),
    "ending/ended_without_start": _publishes(
        execution_name("full", "2012-08", 1), "CANCELLED Cancelled", "RequestsCancelled"
    ),
    "ending/refused": lambda outcome: (
        (outcome.failed_items, outcome.counted("EndingsHandled")) == (0, [1.0]) and not outcome.counted("EventsNotSent")
    ),
    "process_registrar/create": _registered(3, "orders-job", created=True),
    "process_registrar/update_limit": _registered(3, "orders-job", created=False),
    "process_registrar/update_job": _registered(3, "better-orders-job", created=False),
    "process_registrar/delete": lambda outcome: (
        outcome.response["Status"] == "SUCCESS" and outcome.process("orders").slot_limit == 3
    ),
    "process_registrar/missing_job": lambda outcome: (
        outcome.response["Status"] == "FAILED"
        and "no-such-job" in outcome.response["Reason"]
        and not outcome.row("SlotTable", "orders")
    ),
    "process_registrar/permitted_jobs": lambda outcome: outcome.response["Status"] == "SUCCESS",
    "token_refresher/schedule": _new_token,
    "token_refresher/ask": _new_token,
    "token_refresher/ask_delivered_twice": lambda outcome: (
        outcome.answer == {"Generation": "1"} and outcome.counted("TokenRefreshes") == []
    ),
    "token_refresher/create": lambda outcome: _new_token(outcome) and outcome.response["Data"] == {"Generation": "1"},
    "token_refresher/delete": lambda outcome: (
        (outcome.response["Status"], outcome.response["Data"], outcome.row("TokenTable", "chatbot"))
        == ("SUCCESS", {}, {})
    ),
    "retry_report/scheduled": lambda outcome: (
        outcome.answer == {"failures": 1, "causes": 1, "rows": 1} and outcome.counted("RetryReports") == [1.0]
    ),
    "chatbot/happy": _answers,
    "chatbot/replay": _refuses(401, "ReplayedSignature"),
    "chatbot/wrong_signature": _refuses(401, "WrongSignature"),
    "chatbot/stale_timestamp": _refuses(401, "StaleTimestamp"),
    "chatbot/not_json": _refuses(400, "MalformedMessage"),
    "chatbot/wrong_method": _refuses(405, "MethodNotAllowed"),
    "worker/redelivery": lambda outcome: (outcome.failed_items, outcome.counted("WorkRepeated")) == (0, [1.0]),
    # The event before it may have been dead-lettered too, depending on the work.
    "worker/reused_id": lambda outcome: (
        (outcome.failed_items, outcome.counted("WorkDeadLettered")) == (0, [1.0])
        and "RequestIdReused" in outcome.codes("WorkDeadLetterQueue")
    ),
    "worker/not_json": work_dead_lettered("InvalidMessage"),
    "worker/hop_not_due": lambda outcome: (
        (outcome.failed_items, outcome.delayed("WorkQueue"), outcome.counted("WorkHops")) == (0, 1, [2.0])
        and not outcome.row("RequestLedgerTable", "orders-2026-11-21")
    ),
}
