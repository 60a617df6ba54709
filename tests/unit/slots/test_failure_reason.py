"""The reason of a failure, from the causes that Step Functions and Glue return."""

from __future__ import annotations

import json

import pytest

from slotkeeper.slots.executions import failed_run, failure_reason

# The JobRun of a failed run, as Step Functions returns it: without spaces, keys in alphabetical order.
RUN = {
    "AllocatedCapacity": 1,
    "Arguments": {"--month": "2026-13", "--slotkeeper-execution": "sample-0a6f"},
    "Attempt": 0,
    "CompletedOn": 1658743757541,
    "ErrorMessage": "ValueError: no such month: \"2026-13\"",
    "Id": "jr_21e3",
    "JobName": "sample-job",
    "JobRunState": "FAILED",
    "StartedOn": 1658743679354,
}  # fmt: skip


def cause_of(**fields: object) -> str:
    return json.dumps({name: value for name, value in {**RUN, **fields}.items() if value is not None}, separators=",:")


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (cause_of(), 'ValueError: no such month: "2026-13"'),
        (f"States.TaskFailed: {cause_of()}", 'ValueError: no such month: "2026-13"'),
        (cause_of(ErrorMessage="line 1\nline 2\n"), "line 1\nline 2"),
        (cause_of(ErrorMessage="half a pair \ud83d"), "half a pair ?"),
        (
            cause_of(JobRunState="TIMEOUT", ErrorMessage=None),
            "Glue run jr_21e3 ended as TIMEOUT, without an error message",
        ),
        (
            cause_of(JobRunState="STOPPED", ErrorMessage=""),
            "Glue run jr_21e3 ended as STOPPED, without an error message",
        ),
        # An operator's StopExecution may give any cause. Without a reason, its end would never be published.
        (r'{"ErrorMessage": "no C:\data"}', "no C:..."),
    ],
    ids=["failed", "after the error's name", "lines", "not printable", "timed out", "stopped", "no run"],
)
def test_the_reason_of_an_unsuccessful_run_is_glue_s_message(cause: str, reason: str) -> None:
    assert failure_reason(cause) == reason


@pytest.mark.parametrize(
    "cause",
    [
        "",
        "slotkeeper request cancel, by arn:aws:sts::123456789012:assumed-role/operator/alice",
        "States.QueryEvaluationError: An error occurred while executing the state 'S' (entered at the event id #2). "
        "The JSONata expression '$a' specified for the field 'Output' returned nothing (undefined).",
        "Job sample-job: concurrent runs exceeded (Service: AWSGlue; Status Code: 400; Error Code: "
        "ConcurrentRunsExceededException; Request ID: 0c1d; Proxy: null)",
        "Glue.EntityNotFoundException: {unexpected",
        '{"message":"not a run"}',
        "[" * 9999,
        "null",
        '{"ErrorMessage":""}',
    ],
)
def test_any_other_cause_is_the_reason_itself(cause: str) -> None:
    assert failure_reason(cause) == cause


def test_the_message_is_found_in_a_cause_that_was_cut_at_any_character() -> None:
    """Also within an escape; an argument that quotes a message does not count as one."""
    message = 'quote " backslash \\ snowman ☃ newline \n end'
    arguments = {"--note": '{"ErrorMessage":"not this one"}'}
    cause = cause_of(Arguments=arguments, ErrorMessage=message)
    start = cause.index('"ErrorMessage":"') + len('"ErrorMessage":"')
    for length in range(start, len(cause)):
        reason = failure_reason(cause[:length])
        assert reason == message or (reason.endswith("...") and message.startswith(reason[:-3].rstrip("?")))
        assert "not this one" not in reason


def test_the_run_is_named_by_a_cause_that_contains_it_and_not_by_an_argument() -> None:
    arguments = {"--note": '{"Id":"jr_other"}'}
    assert failed_run(f"States.TaskFailed: {cause_of(Arguments=arguments)}") == "jr_21e3"
    assert failed_run("The workflow ended with status ABORTED") == ""
    assert failed_run(cause_of(Arguments=arguments, Id=None)) == ""


def test_a_cause_that_was_cut_before_the_message_is_reported_as_such() -> None:
    cause = cause_of(Arguments={"--note": "x" * 9000})[:8000]
    assert failure_reason(cause).startswith("unknown: the cause was cut before Glue's error message")
