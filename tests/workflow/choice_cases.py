"""The choices of the workflow: for these variables, this state follows."""

from __future__ import annotations

from tests.workflow.case import MANUAL_INPUTS, REQUEST, Case, choices, denial, of_input
from tests.workflow.confirm_cases import PERMITTED
from tests.workflow.interpreter import Variables
from tests.workflow.paths import MACHINE

_CHILD_REQUEST = {"process": "p", "request_id": "order-1", "attempt": 1, "input": {"day": 1}}
_CHOSEN: Variables = {"caller": "NONE", "target": "j", "permitted": PERMITTED}


def _work(target: str, next_state: str, given: object) -> list[Case]:
    """The choice of the work for a request, whose schema no manually started execution has passed."""
    return choices("ChooseWork", _CHOSEN, ({"target": target}, next_state), context=of_input(given))


_WORK = [
    *choices("ChooseWork", _CHOSEN, ({"caller": "UNKNOWN"}, "ReadToken"), ({"caller": "GONE"}, "CallerGone")),
    *_work("j", "WrongInput", _CHILD_REQUEST),
    *_work("j", "WrongInput", {"input": {}}),
    *_work(MACHINE, "WrongInput", REQUEST),
    *_work(MACHINE, "RunStateMachine", {"arguments": {}}),
    *(each for given in MANUAL_INPUTS[:4] for each in _work(MACHINE, "RunStateMachine", given)),
    *(each for given in MANUAL_INPUTS[:5] for each in _work("j", "RunGlueJob", given)),
    *(
        each
        for job, next_state in (
            ("j", "RunGlueJob"),
            ("job", "RunGlueJob"),
            ("load-2-of-7", "RunGlueJob"),
            ("load-of-7-of-7", "RunGlueJob"),
            ("load-2-of-70", "TargetNotPermitted"),
            ("a load-2-of-7", "TargetNotPermitted"),
            ("j2", "TargetNotPermitted"),
            ("a j", "TargetNotPermitted"),
            ("none", "TargetNotPermitted"),
        )
        for each in _work(job, next_state, REQUEST)
    ),
    *(
        each
        for machine, next_state in (
            (MACHINE, "RunStateMachine"),
            (f"{MACHINE}2", "TargetNotPermitted"),
            (MACHINE.replace("child", "any"), "RunStateMachine"),
            (MACHINE.replace("child", "any-2"), "RunStateMachine"),
            (MACHINE.replace("child", "many"), "TargetNotPermitted"),
        )
        for each in _work(machine, next_state, _CHILD_REQUEST)
    ),
]


def _failed(error: str, cause: str = "", *, redriven: bool = False) -> Variables:
    return {"failure": {"error": error, "cause": cause}, "outcome": "RETURNED" if redriven else ""}


# Only these errors of RunGlueJob show that no run is alive.
_ENDED = choices(
    "IsGlueRunKnownToHaveEnded",
    {},
    (_failed("States.TaskFailed", '{"Id":"jr","JobRunState":"FAILED"}'), "RecordOutcome"),
    (_failed("States.TaskFailed", '{"JobRunState":"STOPPED","Timeout":5}'), "RecordOutcome"),
    (_failed("States.TaskFailed", '{"Id":"jr","JobRunState":"EXPIRED"}'), "RecordOutcome"),
    (_failed("States.TaskFailed", '{"JobRunState":"RUNNING"}'), "WaitForGlueRun"),
    (_failed("States.TaskFailed", r'{"--a":"\"JobRunState\":\"FAILED\""}'), "WaitForGlueRun"),
    (_failed("States.TaskFailed", "no cause given"), "WaitForGlueRun"),
    (_failed("States.TaskFailed", denial("glue:StartJobRun")), "WaitForGlueRun"),  # text of the job
    (_failed("States.Timeout"), "WaitForGlueRun"),
    (_failed("States.QueryEvaluationError"), "RecordOutcome"),
    (_failed("States.QueryEvaluationError", "redriven", redriven=True), "WaitForGlueRun"),
    (_failed("Glue.InternalServiceException"), "WaitForGlueRun"),
    (_failed("Glue.OperationTimeoutException"), "WaitForGlueRun"),
    (_failed("Glue.SomethingNew"), "WaitForGlueRun"),
    (_failed("Glue.ConcurrentRunsExceededException"), "RecordOutcome"),
    (_failed("Glue.InvalidInputException"), "WaitForGlueRun"),
    (_failed("Glue.ValidationException"), "WaitForGlueRun"),
    (_failed("Glue.EntityNotFoundException"), "WaitForGlueRun"),
    (_failed("Glue.AccessDeniedException"), "WaitForGlueRun"),
    (_failed("Glue.AccessDeniedException", denial("glue:StartJobRun")), "RecordOutcome"),
    (_failed("Glue.AccessDeniedException", denial("glue:StartJobRun"), redriven=True), "WaitForGlueRun"),
    (_failed("Glue.AccessDeniedException", denial("glue:GetJobRun")), "WaitForGlueRun"),
)

_FIRST_START: Variables = {"outcome": "", "start_again": False, "must_stop": False, "starts": 1}

# Only two complete searches show that no run exists. A throttled start is repeated up to twenty times.
_FOUND = choices(
    "IsGlueRunFound",
    {"next_page": "", "pages": 1, "run_id": "", "failed_reads": 0} | _FIRST_START,
    ({"searches": 1}, "WaitForGlueRun"),
    ({"searches": 2}, "RecordOutcome"),
    ({"searches": 2, "outcome": "RETURNED"}, "ReleaseSlot"),
    ({"searches": 2, "start_again": True}, "RunGlueJob"),
    ({"searches": 2, "start_again": True, "starts": 20}, "RunGlueJob"),
    ({"searches": 2, "start_again": True, "starts": 21}, "RecordOutcome"),
    ({"searches": 1, "next_page": "more"}, "FindGlueRun"),
    ({"searches": 2, "next_page": "more", "start_again": True}, "FindGlueRun"),
    ({"searches": 1, "next_page": "more", "pages": 1500}, "WorkIsUnknown"),
    ({"searches": 1, "pages": 1500}, "WorkIsUnknown"),
    ({"searches": 2, "pages": 1500}, "RecordOutcome"),
    ({"searches": 2, "next_page": "more", "pages": 1500}, "WorkIsUnknown"),
    ({"searches": 1, "next_page": "more", "pages": 1500, "run_id": "jr_1"}, "ReadGlueRun"),
    ({"searches": 1, "start_again": True, "run_id": "jr_1"}, "ReadGlueRun"),
    ({"searches": 1, "run_id": "jr_1", "failed_reads": 59}, "ReadGlueRun"),
    ({"searches": 1, "run_id": "jr_1", "failed_reads": 60}, "WorkIsUnknown"),
)

# A run has its time limit of 60 minutes, and 15 minutes more, before the workflow stops it.
_RUN = choices(
    "HasGlueRunEnded",
    {"run_state": "RUNNING", "run_has_ended": False, "run_minutes": 1, "failed_reads": 0, "stops": 0}
    | {"timeout_minutes": 60}
    | _FIRST_START,
    ({"run_state": "SUCCEEDED", "run_has_ended": True}, "RecordOutcome"),
    ({"run_state": "SUCCEEDED", "run_has_ended": True, "must_stop": True, "outcome": "RETURNED"}, "RecordOutcome"),
    ({"run_state": "FAILED", "run_has_ended": True}, "GlueRunNotSucceeded"),
    ({"run_state": "FAILED", "run_has_ended": True, "start_again": True}, "GlueRunNotSucceeded"),
    ({"run_state": "STOPPED", "run_has_ended": True, "must_stop": True}, "RecordOutcome"),
    ({"run_state": "STOPPED", "run_has_ended": True, "must_stop": True, "outcome": "RETURNED"}, "ReleaseSlot"),
    ({}, "WaitForEndOfGlueRun"),
    ({"start_again": True}, "WaitForEndOfGlueRun"),
    ({"failed_reads": 59}, "WaitForEndOfGlueRun"),
    ({"failed_reads": 60}, "WorkIsUnknown"),
    ({"run_minutes": 74}, "WaitForEndOfGlueRun"),
    ({"run_minutes": 75}, "GlueRunIsLate"),
    ({"run_minutes": 75, "timeout_minutes": 61}, "WaitForEndOfGlueRun"),
    ({"run_minutes": 75, "must_stop": True}, "StopGlueRun"),
    ({"must_stop": True}, "StopGlueRun"),
    ({"must_stop": True, "stops": 119}, "StopGlueRun"),
    ({"must_stop": True, "stops": 120}, "WorkIsUnknown"),
)

# The child's own status decides. It has five minutes, and its process ninety seconds to settle.
_CHILD = choices(
    "HasChildEnded",
    {
        "run_state": "RUNNING",
        "is_ours": True,
        "closed_seconds": 0,
        "settle_seconds": 90,
        "outcome": "",
        "must_stop": False,
        "run_minutes": 4,
        "timeout_minutes": 5,
        "searches": 0,
        "failed_reads": 0,
        "stops": 0,
    },
    ({}, "WaitForChild"),
    ({"run_state": "SUCCEEDED"}, "RecordOutcome"),
    ({"run_state": "SUCCEEDED", "must_stop": True, "outcome": "RETURNED", "stops": 120}, "RecordOutcome"),
    ({"run_state": "SUCCEEDED", "is_ours": False}, "NameTaken"),
    ({"run_state": "RUNNING", "is_ours": False, "must_stop": True}, "NameTaken"),
    ({"run_state": "FAILED"}, "ChildNotSucceeded"),
    ({"run_state": "FAILED", "must_stop": True}, "RecordOutcome"),
    ({"run_state": "FAILED", "must_stop": True, "outcome": "RETURNED"}, "ReleaseSlot"),
    ({"run_state": "ABORTED"}, "SettleChild"),
    ({"run_state": "ABORTED", "settle_seconds": 0}, "ChildNotSucceeded"),
    ({"run_state": "ABORTED", "closed_seconds": 89}, "SettleChild"),
    ({"run_state": "TIMED_OUT", "closed_seconds": 89}, "SettleChild"),
    ({"run_state": "TIMED_OUT", "closed_seconds": 90}, "ChildNotSucceeded"),
    ({"run_state": "ABORTED", "must_stop": True, "stops": 120, "closed_seconds": 90}, "RecordOutcome"),
    ({"run_state": "NOT_FOUND", "searches": 2}, "WaitForChild"),
    ({"run_state": "NOT_FOUND", "searches": 3}, "RecordOutcome"),
    ({"run_state": "NOT_FOUND", "searches": 3, "outcome": "RETURNED", "must_stop": True}, "ReleaseSlot"),
    ({"failed_reads": 1}, "WaitForChild"),
    ({"failed_reads": 59, "must_stop": True}, "WaitForChild"),
    ({"failed_reads": 60}, "WorkIsUnknown"),
    ({"run_minutes": 4}, "WaitForChild"),
    ({"run_minutes": 5}, "ChildIsLate"),
    ({"run_state": "PENDING_REDRIVE"}, "WaitForChild"),
    ({"must_stop": True, "stops": 119}, "StopChild"),
    ({"must_stop": True, "stops": 120}, "WorkIsUnknown"),
)

_OUTCOME = choices(
    "ChooseOutcome",
    {"run_state": "FAILED", "outcome": ""},
    ({"run_state": "SUCCEEDED"}, "RequestSucceeded"),
    ({"run_state": "SUCCEEDED", "outcome": "RETURNED"}, "RequestSucceeded"),
    ({"outcome": "RETURNED"}, "SlotLost"),
    ({}, "RequestFailed"),
)

CHOICES = [*_WORK, *_ENDED, *_FOUND, *_RUN, *_CHILD, *_OUTCOME]
