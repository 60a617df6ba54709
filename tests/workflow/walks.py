"""Walks through the workflow's definition.

A walk takes one way through the data: every task may succeed in each way it can, or fail into each of its catchers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

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
    """The states of one walk, in order, with the variables that each was entered with.

    Attributes:
        variables: those of the last state, after it if the execution ended in a task.
    """

    names: tuple[str, ...]
    entered: tuple[Variables, ...]
    variables: Variables

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


class Scenario(NamedTuple):
    """What a walk's data begin with.

    Attributes:
        redrives: the execution is redriven at the first state that its slot protects.
        target: of the process.
        waits: a caller waits for the answer.
        rounds: how often a walk enters a state at most.
    """

    redrives: int = 0
    target: str = "job"
    waits: bool = False
    rounds: int = 2

    @property
    def context(self) -> dict[str, Any]:
        request = {"process": "p", "request_id": "order-1", "attempt": 1}
        request |= {"arguments": {}} if self.target == "job" else {"input": {"day": 1}}
        request |= {"caller": "0" * 32} if self.waits else {}
        execution = {
            "Name": ME,
            "Id": ARN,
            "Input": request,
            "RedriveCount": self.redrives,
            "StartTime": START_TIME,
        }
        return {"Execution": execution, "State": {"EnteredTime": NOW}}

    def results(self, name: str) -> list[Any]:
        """Each result of a task."""
        if name == "ConfirmSlot":
            settings = {} if self.target == "job" else {"settle_seconds": {"N": str(SETTLE_SECONDS)}}
            holders = {"M": {ME: {"M": {"job": {"S": self.target}, "state": {"S": "RUNNING"}}}}}
            return [{"Attributes": {"holders": holders, "run_settings": {"M": settings}}}]
        return RESULTS.get(name, [{}])


def all_walks(redrives: int = 0, target: str = "job", waits: bool = False) -> tuple[Path, ...]:
    """The walks, made once: they take seconds, which the collection of tests must not."""
    return _all_walks(Scenario(redrives, target, waits))


@cache
def _all_walks(scenario: Scenario) -> tuple[Path, ...]:
    return tuple(walks(scenario))


def walks(scenario: Scenario) -> Iterator[Path]:
    """Every walk from the start to an end that enters no state more than `rounds` times."""
    yield from _Walker(scenario).walk(definition()["StartAt"], {}, (), ())


@cache
def redriven(target: str = "job", waits: bool = False) -> tuple[tuple[Path, Path], ...]:
    """A walk, and each walk of its execution that is aborted in its last state, and redriven there.

    Only the variables that are still read count, so each state is redriven once for each of their values.
    """
    looked_at, seen, found = set[tuple[str, int]](), set[str](), []
    walker = _Walker(Scenario(1, target, waits, rounds=1))
    for path in all_walks(0, target, waits):
        for at, (name, variables) in enumerate(zip(path.names, path.entered, strict=True)):
            if (name, id(variables)) in looked_at:
                continue  # paths with the same beginning share its variables
            looked_at.add((name, id(variables)))
            read = {key: value for key, value in variables.items() if key in _read(name)}
            if (key := name + json.dumps(read, sort_keys=True)) not in seen:
                seen.add(key)
                before = Path(path.names[: at + 1], path.entered[: at + 1], variables)
                found += [(before, after) for after in walker.walk(name, variables, (), ())]
    return tuple(found)


_read = cache(still_read)


def _distinct(outcomes: Iterator[tuple[str, Variables]]) -> list[tuple[str, Variables]]:
    """Without those that continue like an earlier one, such as a failure that changes nothing."""
    found: list[tuple[str, Variables]] = []
    for outcome in outcomes:
        if outcome not in found:
            found.append(outcome)
    return found


class _Walker:
    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._context = scenario.context

    def walk(
        self, name: str, variables: Variables, before: tuple[str, ...], entered: tuple[Variables, ...]
    ) -> Iterator[Path]:
        if name == END:
            yield Path(before, entered, variables)
            return
        way, entries = (*before, name), (*entered, variables)
        if STATES[name].kind in ENDS:
            yield Path(way, entries, variables)
        elif way.count(name) <= self._scenario.rounds:
            try:
                outcomes = _distinct(self._outcomes(name, variables))
            except StateFailed:
                yield Path(way, entries, variables)
                return
            for following, left_with in outcomes:
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
            for result in self._scenario.results(name):
                try:
                    yield state.leave(self._context, variables, result=result)
                except StateFailed as failed:
                    failures = [*failures, (failed.error, failed.cause)]
        for error, cause in failures:
            yield state.catch(StateFailed(error, cause), self._context, variables)
