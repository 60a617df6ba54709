"""The figures and claims of `make run TARGET=workflow`: records in, report out. Pure.

Keys of report.json next to those of dev/scenarios/runner/scenario.py (times in seconds; instants count from the first
request sent):

| key | meaning |
|---|---|
| `requests`, `succeeded`, `failed`, `kept`, `dead_lettered`, `total_seconds` | as in slot_figures.py |
| `starts_in_message_order`, `slots_in_use_at_end`, `handoff`, `handoffs` | as in slot_figures.py |
| `slot_utilisation`, `max_slots_held` | as in slot_figures.py |
| `called` | requests that the caller sent and waited for |
| `answers` | results that the caller's Map collected |
| `answer_seconds` | count, median, max: from the end of a child to the end of the state that answered its caller |
| `max_children_open` | most executions of the target open at any instant |
| `max_child_states_open` | most workflows inside RunStateMachine |
| `child_utilisation` | as `slot_utilisation`, for the time inside RunStateMachine |
| `workflows` | one entry per workflow: name, request_id, status, whether a caller waits, instants of its states |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dev.emulator.live_view import counted
from dev.scenarios.runner.claims import Claim, judge
from dev.scenarios.runner.scenario import Run
from slotkeeper_cli.intervals import peak, spread

from .slot_figures import Parameters, end_of, measure
from .slot_records import Execution
from .slot_requests import SentRequest
from .target_records import Called, Child, TargetRecords
from .target_requests import expected


def build(parameters: Parameters, recorded: TargetRecords, run: Run) -> dict[str, Any]:
    """The report of one run."""
    sent, records, children, called = recorded.sent, recorded.records, recorded.children, recorded.called
    executions = records.executions
    alive = peak((each.started, end_of(each.stopped)) for each in children)
    last, origin, claims, figures = measure(
        parameters.limit, sent, records, "child", "RunStateMachine", {"children open": alive}
    )
    claims += [
        one_child_each(executions, children),
        outcomes_as_expected(sent, children, last),
        caller_has_all(called, children, last),
    ]
    ended = {each.name: end_of(each.stopped) for each in children}
    answered = {e.name: at for e in executions if (at := e.exited("AnswerSuccess") or e.exited("AnswerFailure"))}
    figures |= {
        "called": len(called.asked),
        "answers": len(called.answers),
        "max_children_open": alive,
        "answer_seconds": spread([at - ended[name] for name, at in answered.items() if name in ended], median=0.5),
        "workflows": [each | {"is_called": each["request_id"] in called.asked} for each in figures["workflows"]],
    }
    return run.report(parameters, origin, claims, figures)


# ------------------------------------------------------------------------------------------------------------- claims


def one_child_each(executions: Sequence[Execution], children: Sequence[Child]) -> Claim:
    """Each workflow has run one execution of the target, with its own name. No other execution was started."""
    workflows, names = {e.name for e in executions}, [each.name for each in children]
    problems = {
        "workflows without a child": sorted(workflows - set(names)),
        "children of no workflow": sorted(set(names) - workflows),
        "children that have not ended": [each.name for each in children if each.stopped is None],
    }
    return judge("each workflow runs one child execution", problems, counted(len(names), "child execution"))


def outcomes_as_expected(
    sent: Sequence[SentRequest], children: Sequence[Child], last: Mapping[str, Execution]
) -> Claim:
    """Damaged inputs fail. The other children return what is computed here from their input."""
    outputs = {each.name: each.output for each in children}
    problems: dict[str, list[str]] = {"ended otherwise than expected of their input": [], "another result": []}
    for each in sent:
        request, execution = each.request, last.get(each.request.request_id)
        if execution is None:
            continue
        if (execution.status == "SUCCEEDED") == request.damaged:
            problems["ended otherwise than expected of their input"].append(f"{request.request_id} {execution.status}")
        elif not request.damaged and outputs.get(execution.name) != expected(request.input or {}):
            problems["another result"].append(request.request_id)
    damaged = sum(each.request.damaged for each in sent)
    finding = f"{len(sent) - damaged} results as computed from the inputs; {damaged} damaged inputs failed"
    return judge("the outcomes are those expected of the inputs", problems, finding)


def caller_has_all(called: Called, children: Sequence[Child], last: Mapping[str, Execution]) -> Claim:
    """The caller's Map has one answer for each request, in the order of its items: the child's output, or an error."""
    outputs = {each.name: each.output for each in children}
    answers = {str(each["request_id"]): each for each in called.answers}
    problems: dict[str, list[str]] = {
        "it ended as": [called.status] if called.status != "SUCCEEDED" else [],
        "without an answer": [name for name in called.asked if name not in answers],
        "not in the order of the items": (
            [] if [each["request_id"] for each in called.answers] == list(called.asked) else ["the answers"]
        ),
        "another answer than the child's output": [],
    }
    for name, answer in answers.items():
        execution = last.get(name)
        succeeded = execution is not None and execution.status == "SUCCEEDED"
        if execution is None or (
            answer.get("result") != outputs.get(execution.name) if succeeded else "error" not in answer
        ):
            problems["another answer than the child's output"].append(name)
    errors = sum("error" in each for each in called.answers)
    finding = f"{len(called.answers) - errors} results and {counted(errors, 'error')} for {len(called.asked)} items"
    return judge("the caller's Map has every answer, in order", problems, finding, shown=bool(called.asked))
