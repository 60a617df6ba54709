"""The outcome of each sample event: answers, metrics, items, dead-letter messages and executions.

The names are those of the files in events/, whose README describes the outcomes. Those of a function that you may
replace are in functions/<function>/tests/expected_events.py.
"""

from __future__ import annotations

import json

from dev.emulator.chat_service import answer_to
from slotkeeper.slots.request import execution_name
from tests.runtime.runtime_outcomes import Expectation, Outcome, work_dead_lettered

FIRST = execution_name("sample", "2012-01", 1)


def _starts(request_id: str, attempt: int = 1, process: str = "sample") -> Expectation:
    name = execution_name(process, request_id, attempt)
    return lambda outcome: (
        (outcome.failed_items, outcome.counted("RequestsAdmitted")) == (0, [1.0])
        and outcome.execution(name) == "RUNNING"
        and list(outcome.process(process).holders) == [name]
    )


def _waits(process: str) -> Expectation:
    return lambda outcome: (
        (outcome.failed_items, outcome.counted("RequestsRefused")) == (1, [1.0])
        and outcome.waits(process)
        and not outcome.process(process).holders
        and not outcome.messages("RequestDeadLetterQueue")
    )


def _request_dead_lettered(code: str) -> Expectation:
    return lambda outcome: (
        (outcome.failed_items, outcome.counted("RequestsDeadLettered")) == (0, [1.0])
        and outcome.codes("RequestDeadLetterQueue") == [code]
        and not outcome.process("sample").holders
    )


def _keeps(request_id: str, error: str) -> Expectation:
    name = execution_name("sample", request_id, 1)
    return lambda outcome: (
        (outcome.failed_items, outcome.counted("RequestsKept")) == (0, [1.0])
        and [each["error"] for each in outcome.messages("FailedRequestQueue")] == [error]
        and json.loads(outcome.messages("FailedRequestQueue")[0]["body"])["request_id"] == request_id
        and outcome.row("SettledTable", name)["settled_by"] == "janitor"
    )


def _registered(limit: int, job: str, created: bool) -> Expectation:
    return lambda outcome: (
        (outcome.response["Status"], outcome.response["Data"]) == ("SUCCESS", {"Created": str(created).lower()})
        and (outcome.process("orders").slot_limit, outcome.process("orders").target) == (limit, job)
    )


def _refused_to_register(reason: str) -> Expectation:
    return lambda outcome: (
        outcome.response["Status"] == "FAILED"
        and reason in outcome.response["Reason"]
        and not outcome.row("SlotTable", "orders")
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
    "starter/redelivery": _starts("2012-01"),
    "starter/second_attempt": _starts("2012-01", 2),
    "starter/urgent": lambda outcome: _starts("2012-04")(outcome) and outcome.process("sample").slots_in_use == 2,
    "starter/repeated": lambda outcome: (
        (outcome.failed_items, outcome.counted("RequestsRepeated")) == (0, [1.0])
        and not outcome.process("sample").holders
        and not outcome.messages("RequestDeadLetterQueue")
    ),
    "starter/full": _waits("full"),
    "starter/early": _waits("early"),
    "starter/paused": _waits("paused"),
    "starter/skipped": lambda outcome: (
        (outcome.failed_items, outcome.counted("RequestsSkipped")) == (0, [1.0])
        and outcome.row("SettledTable", f"#skipped:{execution_name('full', '2012-01', 1)}")["request_id"] == "2012-01"
        and not outcome.waits("full")
        and not outcome.messages("RequestDeadLetterQueue")
    ),
    "starter/too_late": _request_dead_lettered("TooLate"),
    "starter/expired": _request_dead_lettered("Expired"),
    "starter/not_json": _request_dead_lettered("InvalidRequest"),
    "starter/unknown_field": _request_dead_lettered("InvalidRequest"),
    "starter/reserved_argument": _request_dead_lettered("InvalidRequest"),
    "starter/wrong_group": _request_dead_lettered("InvalidRequest"),
    "starter/unknown_process": _request_dead_lettered("UnknownProcess"),
    "starter/cancelled": _request_dead_lettered("Cancelled"),
    "starter/malformed_process": lambda outcome: (
        (outcome.failed_items, outcome.counted("StarterErrors")) == (1, [1.0])
        and not outcome.messages("RequestDeadLetterQueue")
    ),
    "janitor/scheduled_run": lambda outcome: (
        outcome.answer == {"SlotsReclaimed": 1}
        and outcome.counted("JanitorRuns") == [1.0]
        and not outcome.process("sample").holders
    ),
    "execution_closed/aborted": _keeps("2012-01", "ABORTED"),
    "execution_closed/timed_out": _keeps("2012-03", "TIMED_OUT"),
    "execution_closed/failed": lambda outcome: (
        outcome.failed_items == 0
        and not outcome.messages("FailedRequestQueue")
        and outcome.row("SettledTable", execution_name("sample", "2012-02", 1))["settled_by"] == "workflow"
    ),
    "execution_closed/unknown_execution": lambda outcome: (
        (outcome.failed_items, outcome.counted("StatusEventsHandled")) == (0, [1.0])
        and not outcome.messages("FailedRequestQueue")
    ),
    "process_registrar/create": _registered(3, "orders-job", created=True),
    "process_registrar/update_limit": _registered(3, "orders-job", created=False),
    "process_registrar/update_job": _registered(3, "better-orders-job", created=False),
    "process_registrar/delete": lambda outcome: (
        outcome.response["Status"] == "SUCCESS" and outcome.process("orders").slot_limit == 3
    ),
    "process_registrar/retrying_job": _refused_to_register("MaxRetries 1; it must be 0"),
    "process_registrar/missing_job": _refused_to_register("no-such-job"),
    "process_registrar/permitted_jobs": lambda outcome: outcome.response["Status"] == "SUCCESS",
    "process_registrar/limit_too_high": _refused_to_register("0 to 100000"),
    "token_refresher/schedule": _new_token,
    "token_refresher/ask": _new_token,
    "token_refresher/ask_delivered_twice": lambda outcome: (
        outcome.answer == {"Generation": "1"} and outcome.counted("TokenRefreshes") == []
    ),
    "token_refresher/create": lambda outcome: _new_token(outcome) and outcome.response["Data"] == {"Generation": "1"},
    "token_refresher/update": lambda outcome: _new_token(outcome) and outcome.response["Data"] == {"Generation": "1"},
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
    "chatbot/missing_signature": _refuses(401, "MissingHeader"),
    "chatbot/stale_timestamp": _refuses(401, "StaleTimestamp"),
    "chatbot/malformed_timestamp": _refuses(401, "MalformedTimestamp"),
    "chatbot/not_json": _refuses(400, "MalformedMessage"),
    "chatbot/no_message_id": _refuses(400, "MalformedMessage"),
    "chatbot/unknown_field": _refuses(400, "MalformedMessage"),
    "chatbot/wrong_method": _refuses(405, "MethodNotAllowed"),
    "chatbot/unknown_path": _refuses(404, "NotFound"),
    "worker/redelivery": lambda outcome: (outcome.failed_items, outcome.counted("WorkRepeated")) == (0, [1.0]),
    # The event before it may have been dead-lettered too, depending on the work.
    "worker/reused_id": lambda outcome: (
        (outcome.failed_items, outcome.counted("WorkDeadLettered")) == (0, [1.0])
        and "RequestIdReused" in outcome.codes("WorkDeadLetterQueue")
    ),
    "worker/not_json": work_dead_lettered("InvalidMessage"),
    "worker/missing_request_id": work_dead_lettered("InvalidMessage"),
    "worker/unknown_field": work_dead_lettered("InvalidMessage"),
    "worker/hop_not_due": lambda outcome: (
        (outcome.failed_items, outcome.delayed("WorkQueue"), outcome.counted("WorkHops")) == (0, 1, [2.0])
        and not outcome.row("RequestLedgerTable", "orders-2026-11-21")
    ),
}
