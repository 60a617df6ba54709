"""Walks the workflow over its data: every task may succeed in each way it can, or fail into each of its catchers.

Choices, outputs and arguments are evaluated as the JSONata that they are, so a path that the data rules out is none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import jsonata

from tests.workflow.definition import END, ENDS, definition, states

ME = "p-1"
SUBSTITUTES = {
    "GlueTimeoutMinutes": "60",
    "GlueLookSeconds": "30",
    "StackName": "stack",
    "FailedRequestQueueUrl": "https://sqs.us-east-1.amazonaws.com/123456789012/failed",
}

_run = {"StartedOn": "2026-01-01T00:00:00.000Z", "Arguments": {"--slotkeeper-execution": ME}}
RESULTS: dict[str, list[Any]] = {
    "ConfirmSlot": [{"Attributes": {"holders": {"M": {ME: {"M": {"job": {"S": "job"}, "state": {"S": "RUNNING"}}}}}}}],
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
        {"JobRun": {"Id": "jr_1", "JobRunState": "RUNNING", **_run, "StartedOn": "2025-12-31T00:00:00.000Z"}},
    ],
    "ReadWaiting": [
        {"Item": {"slots_in_use": {"N": "1"}, "slot_limit": {"N": "1"}}},
        {
            "Item": {
                "slots_in_use": {"N": "0"},
                "slot_limit": {"N": "1"},
                "waiting": {"M": {"receipt_handle": {"S": "handle"}}},
            }
        },
    ],
}
CAUSES = {
    "RunGlueJob": [
        ("States.TaskFailed", '{"JobRunState":"FAILED"}'),
        ("States.Timeout", None),
        ("Glue.ConcurrentRunsExceededException", "refused"),
        ("Glue.AWSGlueException", "Rate exceeded (Error Code: ThrottlingException)"),
    ]
}


@dataclass(frozen=True)
class Path:
    """The states of one walk, in order, and what the last one was given."""

    names: tuple[str, ...]
    data: Any

    @property
    def end(self) -> dict[str, Any]:
        return states()[self.names[-1]]

    @property
    def status(self) -> str:
        """Of the execution, as Step Functions has it."""
        return "FAILED" if self.end["Type"] == "Fail" else "SUCCEEDED"


def evaluate(template: Any, known: dict[str, Any]) -> Any:
    """A field's value: its expressions evaluated with these as $states."""
    if isinstance(template, dict):
        return {key: evaluate(part, known) for key, part in template.items()}
    if isinstance(template, list):
        return [evaluate(part, known) for part in template]
    if not isinstance(template, str) or not template.startswith("{%"):
        return template
    text = template.removeprefix("{%").removesuffix("%}").strip()
    for name, value in SUBSTITUTES.items():
        text = text.replace("${" + name + "}", value)
    return _compiled(text).evaluate(None, {"states": known})


@cache
def _compiled(text: str) -> Any:
    compiled = jsonata.Jsonata.jsonata(text)
    compiled.register_lambda("hash", lambda value, algorithm: hashlib.new(algorithm, value.encode()).hexdigest())
    compiled.register_lambda("random", lambda: 0.5)  # a walk must be the same walk whenever it is taken
    return compiled


def walks(redrives: int = 0, rounds: int = 2) -> Iterator[Path]:
    """Every walk from the start to an end that enters no state more than `rounds` times."""
    request = {"process": "p", "request_id": "order-1", "attempt": 1, "arguments": {}}
    execution = {
        "Name": ME,
        "Id": f"arn:{ME}",
        "Input": request,
        "RedriveCount": redrives,
        "StartTime": "2026-01-01T00:00:00.000Z",
    }
    context = {"Execution": execution, "State": {"EnteredTime": "2026-01-01T00:10:00.000Z"}}
    yield from _walk(definition()["StartAt"], request, context, (), rounds)


def _walk(name: str, data: Any, context: Any, before: tuple[str, ...], rounds: int) -> Iterator[Path]:
    if name == END:
        yield Path(before, data)
        return
    here = (*before, name)
    if states()[name]["Type"] in ENDS:
        yield Path(here, data)
    elif here.count(name) <= rounds:
        # Thousands of walks come by with the same data; JSONata in Python is slow.
        key = (name, str(data), context["Execution"]["RedriveCount"])
        if key not in _known:
            _known[key] = list(_outcomes(name, data, context))
        for following, output in _known[key]:
            yield from _walk(following, output, context, here, rounds)


_known: dict[tuple[str, str, int], list[tuple[str, Any]]] = {}


def _outcomes(name: str, data: Any, context: Any) -> Iterator[tuple[str, Any]]:
    state = states()[name]
    known = {"input": data, "context": context}
    if state["Type"] == "Choice":
        for rule in [*state["Choices"], {"Condition": True, "Next": state["Default"]}]:
            if evaluate(rule["Condition"], known):
                yield rule["Next"], data
                return
    elif state["Type"] == "Task":
        yield from _task(name, state, known)
    else:
        yield state["Next"], evaluate(state.get("Output", data), known)


def _task(name: str, state: dict[str, Any], known: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    failures = CAUSES.get(name, [(state["Catch"][-1]["ErrorEquals"][0], "lost")])
    failures = failures + [(error, "said so") for catcher in state["Catch"][:-1] for error in catcher["ErrorEquals"]]
    try:
        evaluate(state["Arguments"], known)
    except Exception as error:
        failures = [("States.QueryEvaluationError", str(error))]
    else:
        for result in RESULTS.get(name, [{}]):
            yield state.get("Next", END), evaluate(state["Output"], {**known, "result": result})
    for error, cause in failures:
        catcher = next(c for c in state["Catch"] if error in c["ErrorEquals"] or "States.ALL" in c["ErrorEquals"])
        output = {"Error": error} | ({"Cause": cause} if cause is not None else {})
        yield catcher["Next"], evaluate(catcher["Output"], {**known, "errorOutput": output})
