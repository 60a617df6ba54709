"""A case of an expression: a field of the definition, the inputs of its expressions, and their value."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.workflow.interpreter import ME, Variables

REQUEST = {"process": "p", "request_id": "order-1", "attempt": 1, "arguments": {"--day": "\ufffe\uffff"}}
STARTED = "2026-01-01T00:00:00.000Z"
EXECUTION = {"Id": "arn:p-1", "Name": ME, "Input": REQUEST, "RedriveCount": 0, "StartTime": STARTED}
ENTERED = 1767229200_000  # milliseconds since the epoch: EnteredTime
CONTEXT = {"Execution": EXECUTION, "State": {"EnteredTime": "2026-01-01T01:00:00.000Z"}}
REDRIVEN = CONTEXT | {"Execution": EXECUTION | {"RedriveCount": 1}}
LOST = {"Error": "Glue.X", "Cause": "lost"}
# Inputs of executions that were started manually, which no schema has checked.
MANUAL_INPUTS: tuple[Any, ...] = ("text", 5, None, [], [REQUEST], {"process": 5, "input": "text", "arguments": "text"})


def of_input(given: Any, redrives: int = 0) -> dict[str, Any]:
    """The context of an execution with this input."""
    return CONTEXT | {"Execution": EXECUTION | {"Input": given, "RedriveCount": redrives}}


def denial(action: str) -> str:
    """The cause of a denied call (IAM User Guide, "Troubleshoot access denied error messages")."""
    return (
        f"User: arn:aws:sts::123456789012:assumed-role/workflow/a is not authorized to perform: {action} on resource: "
        f"arn:aws:glue:us-east-1:123456789012:job/j because no identity-based policy allows the {action} action"
    )


class Case(NamedTuple):
    """A field, the inputs of its expressions, and their value; or a Choice, its inputs, and the state that follows."""

    path: str
    variables: Variables
    states: dict[str, Any]
    expected: Any


def case(path: str, expected: Any, variables: Variables | None = None, context: Any = CONTEXT, **more: Any) -> Case:
    """A case. `more`: further parts of $states, such as `result`."""
    return Case(path, variables or {}, {"context": context, **more}, expected)


def caught(path: str, expected: Any, variables: Variables | None = None, context: Any = CONTEXT) -> Case:
    """A case of a Catch, after the error LOST."""
    return case(path, expected, variables, context, errorOutput=LOST)


def choices(state: str, usual: Variables, *rows: tuple[Variables, str], context: Any = CONTEXT) -> list[Case]:
    """Cases of a Choice. `rows`: variables that differ from the usual ones, and the state that follows."""
    return [Case(state, usual | seen, {"context": context}, next_state) for seen, next_state in rows]
