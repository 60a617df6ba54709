"""The paths through the workflow that its data allow: a task succeeds in each way it can, or fails into each catcher.

A path is that of an execution, or of one that was aborted in a state and redriven there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.workflow.definition import END, ENDS, definition, states
from tests.workflow.interpreter import ME, STATES, StateFailed, Variables, still_read

ARN = f"arn:aws:states:us-east-1:123456789012:execution:workflow:{ME}"
MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:child"
CHILD = f"arn:aws:states:us-east-1:123456789012:execution:child:{ME}"
TOKEN = "the-task-token"
SETTLE_SECONDS = 90
START_TIME, NOW, LONG_AGO = "2026-01-01T00:00:00.000Z", "2026-01-01T00:10:00.000Z", "2025-12-31T00:00:00.000Z"

_run = {"StartedOn": START_TIME, "Arguments": {"--slotkeeper-execution": ME}}


def child(status: str, parent: str = ARN, started: str = NOW, **more: str) -> dict[str, Any]:
    """The description of an execution with the name of the child."""
    given = json.dumps({"AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID": parent, "day": 1})
    return {"ExecutionArn": CHILD, "Status": status, "Input": given, "StartDate": started, **more}


RESULTS: dict[str, list[Any]] = {
    "ReadToken": [{"Item": {"task_token": {"S": TOKEN}}}, {}],
    "RunGlueJob": [{"Id": "jr_1", "JobRunState": "SUCCEEDED"}, {"Id": "jr_1", "JobRunState": "STOPPED"}],
    "FindGlueRun": [
        {"JobRuns": []},
        {"JobRuns": [{"Id": "jr_1", **_run}]},
        {"JobRuns": [{"Id": "jr_0", **_run, "Arguments": {}}], "NextToken": "more"},
    ],
    "ReadGlueRun": [
        {"JobRun": {"Id": "jr_1", "JobRunState": "SUCCEEDED", **_run}},
        {"JobRun": {"Id": "jr_1", "JobRunState": "STOPPED", **_run}},
        {"JobRun": {"Id": "jr_1", "JobRunState": "WAITING"}},
        {"JobRun": {"Id": "jr_1", "JobRunState": "RUNNING", **_run, "StartedOn": LONG_AGO}},
    ],
    "RunStateMachine": [{"ExecutionArn": CHILD, "Status": "SUCCEEDED", "Output": '{"rows":7}'}],
    "ReadChild": [
        child("SUCCEEDED", Output='{"rows":7}'),
        child("FAILED", Error="NoRows", Cause="the month is empty"),
        child("ABORTED", StopDate=NOW),
        child("ABORTED", StopDate=LONG_AGO),
        child("RUNNING"),
        child("PENDING_REDRIVE", started=LONG_AGO),
        child("SUCCEEDED", parent="arn:of-another", Output='"not ours"'),
        child("RUNNING", parent="arn:of-another", started=LONG_AGO),
    ],
}
SPENT = "Sfn.TaskTimedOutException"
CAUSES = {
    "RunGlueJob": [
        ("States.TaskFailed", '{"JobRunState":"FAILED"}'),
        ("States.Timeout", None),
        ("Glue.ConcurrentRunsExceededException", "refused"),
        ("Glue.AWSGlueException", "Rate exceeded (Error Code: ThrottlingException)"),
    ],
    "RunStateMachine": [
        ("States.TaskFailed", '{"Status":"FAILED"}'),
        ("States.Timeout", None),
        ("StepFunctions.ExecutionAlreadyExistsException", "Execution Already Exists"),
    ],
    "AskCaller": [(SPENT, "Provided task does not exist anymore"), ("States.Timeout", None)],
}


@dataclass(frozen=True)
class Path:
    """The states of an execution, in order, with the variables that each was entered with.

    Attributes:
        variables: those of the last state, after it if the execution ended in a task.
        redriven: the place in `names` of the state in which the execution was aborted and redriven; None if it was not.
    """

    names: tuple[str, ...]
    entered: tuple[Variables, ...]
    variables: Variables
    redriven: int | None = None

    @property
    def end(self) -> dict[str, Any]:
        return states()[self.names[-1]]

    @property
    def status(self) -> str:
        """The execution's status in Step Functions. An uncaught error also ends it."""
        return "SUCCEEDED" if self.end["Type"] == "Succeed" or self.end.get("End") else "FAILED"

    def after(self, name: str) -> tuple[str, ...]:
        """The states that follow the first entry of this one."""
        return self.names[self.names.index(name) + 1 :]

    def entries(self, name: str) -> list[Variables]:
        """The variables of each entry of a state."""
        return [known for each, known in zip(self.names, self.entered, strict=True) if each == name]


def context_of(target: str, waits: bool, redrives: int = 0) -> dict[str, Any]:
    """The context object of an execution whose process has this target, and whose request has a caller if `waits`."""
    request = {"process": "p", "request_id": "order-1", "attempt": 1}
    request |= {"arguments": {}} if target == "job" else {"input": {"day": 1}}
    request |= {"caller": "0" * 32} if waits else {}
    execution = {"Name": ME, "Id": ARN, "Input": request, "RedriveCount": redrives, "StartTime": START_TIME}
    return {"Execution": execution, "State": {"EnteredTime": NOW}}


@cache
def paths(target: str = "job", waits: bool = False) -> tuple[Path, ...]:
    """The paths of an execution that is not redriven, each of which enters a state at most twice."""
    return tuple(_Walker(target, waits, redrives=0, rounds=2).walk(definition()["StartAt"], {}, (), ()))


@cache
def redriven(target: str = "job", waits: bool = False) -> tuple[Path, ...]:
    """The paths of an execution that is redriven, in each state of `paths` with each value of its variables.

    Only the variables that are still read count. One that is redriven in its first state enters a state at most twice,
    and the others once after the redrive.
    """
    seen, found, read = set[str](), [], cache(still_read)
    of_the_first, of_another = (_Walker(target, waits, redrives=1, rounds=rounds) for rounds in (2, 1))
    for path in paths(target, waits):
        for at, (name, variables) in enumerate(zip(path.names, path.entered, strict=True)):
            still = {key: value for key, value in variables.items() if key in read(name)}
            if (key := name + json.dumps(still, sort_keys=True)) not in seen:
                seen.add(key)
                for after in (of_another if at else of_the_first).walk(name, variables, (), ()):
                    names, entered = path.names[:at] + after.names, path.entered[:at] + after.entered
                    found.append(Path(names, entered, after.variables, at))
    return tuple(found)


class _Walker:
    def __init__(self, target: str, waits: bool, redrives: int, rounds: int) -> None:
        self._target, self._rounds = target, rounds
        self._context = context_of(target, waits, redrives)

    def walk(
        self, name: str, variables: Variables, before: tuple[str, ...], entered: tuple[Variables, ...]
    ) -> Iterator[Path]:
        if name == END:
            yield Path(before, entered, variables)
            return
        way, entries = (*before, name), (*entered, variables)
        if STATES[name].kind in ENDS:
            yield Path(way, entries, variables)
        elif way.count(name) <= self._rounds:
            try:
                outcomes = list(self._outcomes(name, variables))
            except StateFailed:
                yield Path(way, entries, variables)
                return
            for number, (following, left_with) in enumerate(outcomes):
                # One that continues like an earlier one, such as a failure that changes nothing, is the same path.
                if (following, left_with) not in outcomes[:number]:
                    yield from self.walk(following, left_with, way, entries)

    def _outcomes(self, name: str, variables: Variables) -> Iterator[tuple[str, Variables]]:
        state = STATES[name]
        if state.kind == "Choice":
            yield state.choose(self._context, variables), variables
        elif state.kind == "Task":
            yield from self._task(name, variables)
        else:
            if state.kind == "Wait":
                state.value("Seconds", self._context, variables)
            yield state.leave(self._context, variables)

    def _task(self, name: str, variables: Variables) -> Iterator[tuple[str, Variables]]:
        state = STATES[name]
        catchers = state.fields["Catch"]
        failures = CAUSES.get(name, [(catchers[-1]["ErrorEquals"][0], "lost")])
        failures = failures + [(error, "said so") for catcher in catchers[:-1] for error in catcher["ErrorEquals"]]
        try:
            state.value("Arguments", self._context, variables)
        except StateFailed as failed:
            failures = [(failed.error, failed.cause)]
        else:
            for result in self._results(name):
                try:
                    yield state.leave(self._context, variables, result=result)
                except StateFailed as failed:
                    failures = [*failures, (failed.error, failed.cause)]
        for error, cause in failures:
            yield state.catch(StateFailed(error, cause), self._context, variables)

    def _results(self, name: str) -> list[Any]:
        """Each result of a task."""
        if name == "ConfirmSlot":
            settings = {} if self._target == "job" else {"settle_seconds": {"N": str(SETTLE_SECONDS)}}
            holders = {"M": {ME: {"M": {"job": {"S": self._target}, "state": {"S": "RUNNING"}}}}}
            return [{"Attributes": {"holders": holders, "run_settings": {"M": settings}}}]
        return RESULTS.get(name, [{}])
