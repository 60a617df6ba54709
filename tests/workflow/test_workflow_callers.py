"""Guarantees of the workflow for a request whose caller, a task of another execution, waits for the answer.

The workflow only asks the caller whether it still waits. endings.py answers it, after the outcome is recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from tests.workflow.interpreter import STATES, StateFailed, Variables, mentioned
from tests.workflow.walks import MACHINE, TOKEN, Path, Scenario, all_walks, redriven

_READ = {name: mentioned(state.fields) for name, state in STATES.items()}
WORK = ("RunGlueJob", "RunStateMachine")


def _walks(redrives: int = 0) -> tuple[Path, ...]:
    return all_walks(redrives, waits=True) + all_walks(redrives, MACHINE, waits=True)


def _distinct(paths: Iterable[Path]) -> Iterator[tuple[str, Variables]]:
    """Each state with its variables, once."""
    seen = set[tuple[str, int]]()
    for path in paths:
        for name, variables in zip(path.names, path.entered, strict=True):
            if (name, id(variables)) not in seen:
                seen.add((name, id(variables)))
                yield name, variables


def _entered() -> Iterator[tuple[str, Variables]]:
    """Each state with its variables on the paths with a caller, also of executions that are redriven in any state."""
    yield from _distinct(_walks() + _walks(redrives=1) + tuple(after for _, after in redriven(MACHINE, waits=True)))


def test_an_answer_is_recorded_of_a_success_whose_caller_waits_and_of_nothing_else() -> None:
    seen = set[tuple[bool, str]]()
    for name, known in (*_entered(), *_distinct(all_walks() + all_walks(target=MACHINE))):
        if name != "RecordOutcome":
            continue
        arguments = STATES[name].value("Arguments", Scenario(waits=True).context, known)
        expected = {"S": known["answer"]} if (known["run_state"], known["caller"]) == ("SUCCEEDED", "WAITS") else None
        assert arguments["ExpressionAttributeValues"].get(":answer") == expected
        seen.add((expected is not None, known["caller"]))
    assert seen == {(True, "WAITS"), (False, "WAITS"), (False, "NONE"), (False, "GONE"), (False, "UNKNOWN")}


def test_work_starts_only_after_the_caller_was_asked() -> None:
    for walk in _walks():
        for work in set(WORK) & set(walk.names):
            before = walk.names[: walk.names.index(work)]
            assert before == ("ConfirmSlot", "ChooseWork", "ReadToken", "AskCaller", "ChooseWork")
    assert not [walk for walk in all_walks() + all_walks(target=MACHINE) if "AskCaller" in walk.names]


def test_nothing_starts_for_a_caller_that_is_gone() -> None:
    gone = [walk for walk in _walks() if "CallerGone" in walk.names]
    assert {walk.variables["caller_error"] for walk in gone} == {
        "Sfn.TaskTimedOutException",
        "its row has no task token",
    }
    for walk in gone:
        assert not {*WORK} & set(walk.names), walk.names
        assert walk.after("CallerGone")[0] == "RecordOutcome"
        assert walk.variables["failure"]["error"] == "CallerGone"


def test_nothing_starts_for_a_caller_whose_token_could_not_be_read() -> None:
    unread = [walk for walk in _walks() if "ReadToken" in walk.names and walk.after("ReadToken")[0] == "RecordOutcome"]
    assert unread
    for walk in unread:
        assert not {*WORK, "CallerGone"} & set(walk.names)


def test_the_token_is_only_where_the_caller_is_asked() -> None:
    found, context = set[str](), Scenario(0, waits=True).context
    for name, variables in _entered():
        assert TOKEN not in str({**variables, "task_token": ""}), name
        for field in {"Arguments", "Cause", "Error", "Output"} & STATES[name].fields.keys():
            try:
                value = STATES[name].value(field, context, variables)
            except StateFailed:
                continue  # it fails on this path too, and so calls nothing
            sent = dict(value) if isinstance(value, dict) else value
            if field == "Arguments" and name == "AskCaller":
                found |= {name} if sent.pop("TaskToken") == TOKEN else set()
            assert TOKEN not in json.dumps(sent), (name, field)
    assert found == {"AskCaller"}


def test_every_variable_has_a_value_where_a_state_reads_it() -> None:
    """Step Functions fails an expression with a variable that no state has assigned."""
    for name, variables in _entered():
        if STATES[name].kind != "Choice":  # a Choice evaluates no rule after the one that applies
            assert not _READ[name] - variables.keys(), name
