"""Completion events of the workflow: on every path one event, last, without effect on the outcome."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.slots.executions import failure_reason
from tests.support.completion_events import checked
from tests.workflow.definition import states
from tests.workflow.interpreter import ME, STATES, StateFailed, Variables
from tests.workflow.walks import Path, all_walks

EVENTS = {"PublishSuccessEvent": "SUCCEEDED", "PublishFailureEvent": "FAILED"}
REQUEST = {"process": "p", "request_id": "order-1", "attempt": 1, "arguments": {"--secret": "hunter2"}}
FAILURE = {"error": "States.TaskFailed", "cause": "the test fails"}


def _event_of(state: str, variables: Variables, given: Any = REQUEST) -> dict[str, Any]:
    """The detail of a state's event, checked by the schema that producers use."""
    execution = {"Name": ME, "Id": f"arn:{ME}", "Input": given, "StartTime": "2026-01-01T00:00:00.000Z"}
    context = {"Execution": execution, "State": {"EnteredTime": "2026-01-01T01:00:00.123Z"}}
    (entry,) = STATES[state].value("Arguments", context, variables)["Entries"]
    return checked(entry)


def test_an_event_is_published_for_exactly_the_requests_that_have_ended() -> None:
    for walk in (*all_walks(), *all_walks(redrives=1)):
        sent = [EVENTS[name] for name in walk.names if name in EVENTS]
        has_ended = walk.status == "SUCCEEDED" or walk.names[-1] == "RequestFailed"
        assert sent == [walk.status] * has_ended, walk
        assert has_ended == (walk.names[-1] not in ("SlotLost", "RequestNotKept", "OutcomeNotRecorded")), walk


def test_the_event_has_the_fields_of_the_execution() -> None:
    for walk in {(walk.names[-1], str(walk.variables)): walk for walk in _walks_with_event()}.values():
        (state,) = set(walk.names) & set(EVENTS)
        event = _event_of(state, walk.variables)
        assert event["status"] == walk.status
        assert (event["flow"], event["process"], event["request_id"], event["attempt"]) == ("slots", "p", "order-1", 1)
        assert (event["execution_name"], event["deduplication_id"]) == (ME, f"{ME}/{event['status']}")
        assert (event["stack"], event["finished_at"]) == ("${StackName}", "2026-01-01T01:00:00.123Z")
        if event["status"] == "FAILED":
            failure = walk.variables["failure"]
            assert (event["error"], event["cause"]) == (failure["error"], failure.get("reason") or failure["cause"])
            assert event["kept_in"] == "failed"


def test_the_event_does_not_contain_the_arguments() -> None:
    cause = '{"Arguments":{"--secret":"hunter2"},"ErrorMessage":"no month","JobRunState":"FAILED"}'
    _, caught = STATES["RunGlueJob"].catch(
        StateFailed("States.TaskFailed", cause), {"Execution": {"RedriveCount": 0}}, {"starts": 0}
    )
    events = _event_of("PublishSuccessEvent", {}), _event_of("PublishFailureEvent", caught)
    assert "hunter2" not in str(events)
    assert events[1]["cause"] == "no month" == failure_reason(cause)


@pytest.mark.parametrize(
    "given",
    [
        {},
        [],
        [1, 2],
        "text",
        {"process": 5, "request_id": {"a": "b" * 300}, "attempt": "x" * 300_000}
        | dict.fromkeys(("priority", "weight"), "x" * 300_000),
    ],
    ids=["nothing", "empty", "numbers", "text", "other types"],
)
def test_a_manually_started_execution_publishes_a_valid_event(given: Any) -> None:
    event = _event_of("PublishFailureEvent", {"failure": FAILURE}, given)
    assert (event["execution_name"], event["attempt"]) == (ME, 1)
    assert (event["priority"], event["weight"]) == ("normal", 0)


def test_the_longest_texts_fit_an_entry() -> None:
    """States.ALL may not catch the error of more than 256 KiB, which would change how the execution ends."""
    longest = "\U0001f600" * 300_000
    given = dict.fromkeys(("process", "request_id"), longest)
    event = _event_of("PublishFailureEvent", {"failure": {"error": longest, "cause": longest}}, given)
    assert [len(event[name]) for name in ("process", "request_id", "error", "cause")] == [128, 128, 256, 8000]


def test_an_outage_of_eventbridge_delays_the_execution_by_less_than_a_minute() -> None:
    publish, count = states()["PublishSuccessEvent"], states()["CountUnsentEvent"]
    for field in ("Retry", "Catch", "TimeoutSeconds"):
        assert states()["PublishFailureEvent"][field] == publish[field]
    (retrier,) = publish["Retry"]
    tries, waits = 1 + retrier["MaxAttempts"], retrier["MaxAttempts"] * retrier["MaxDelaySeconds"]
    assert tries * publish["TimeoutSeconds"] + waits + count["TimeoutSeconds"] < 60


def _walks_with_event() -> list[Path]:
    return [walk for walk in (*all_walks(), *all_walks(redrives=1)) if set(EVENTS) & set(walk.names)]
