"""Without one of its guards, an end is published wrongly, not at all or by another sender in a small world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slotkeeper.slots import outcomes, returns
from slotkeeper.slots.closed_executions import ClosedExecutions
from slotkeeper.slots.ending_queue import EndingQueue
from slotkeeper.slots.endings import Endings
from slotkeeper.slots.janitor import Janitor
from slotkeeper.slots.notices import FailureNotices
from slotkeeper.slots.request_events import RequestEvents
from slotkeeper.slots.rows import RequestRow
from slotkeeper.slots.work import Work
from tests.simulation.slots_state import Plan, Sent
from tests.simulation.slots_world import SlotsWorld
from tests.simulation.workflow import change_state
from tests.simulation.world_runs import Control, replaced, set_to
from tests.simulation.worlds import World

Patch = pytest.MonkeyPatch
A, CALLER = Sent("a"), Sent("a", caller=True)


def _world(*requests: Sent, **plan: Any) -> Callable[[], World]:
    return lambda: SlotsWorld(Plan(requests or (CALLER,), **plan))


def _recorded_with(old: str, new: str) -> Callable[[Patch], None]:
    """Another update of the workflow's outcome."""

    def change(state: dict[str, Any]) -> None:
        assert old in state["Arguments"]["UpdateExpression"]
        state["Arguments"]["UpdateExpression"] = state["Arguments"]["UpdateExpression"].replace(old, new)

    return lambda patch: change_state(patch, "RecordOutcome", change)


def _counts_as_done(owner: Any, name: str) -> Callable[[Patch], None]:
    """The call is made, and its failure is ignored."""

    def remove(patch: Patch) -> None:
        made = getattr(owner, name)
        patch.setattr(owner, name, lambda *given: made(*given) or True)

    return remove


# The sender --------------------------------------------------------------------------------------------------------


def marked_before_the_answer(patch: Patch) -> None:
    answer = Endings._answer

    def hasty(self: Endings, row: RequestRow, reason: str) -> Any:
        self._mark(row, reason)
        return answer(self, row, reason)

    patch.setattr(Endings, "_answer", hasty)


def sent_before_the_answer(patch: Patch) -> None:
    answer = Endings._answer

    def hasty(self: Endings, row: RequestRow, reason: str) -> Any:
        self._events.ended(row, reason, "arn")
        return answer(self, row, reason)

    patch.setattr(Endings, "_answer", hasty)


def answered_before_the_outcome(patch: Patch) -> None:
    """An abort answers its caller before the proof that the work has ended."""
    free = ClosedExecutions._free

    def hasty(self: ClosedExecutions, *given: Any) -> int | None:
        self.endings._callers.fail(CALLER.token, "Aborted", "")
        return free(self, *given)

    patch.setattr(ClosedExecutions, "_free", hasty)


def the_janitor_repeats_nothing(self: Janitor, _processes: Any, report: Any, _until: float) -> None:
    report.counts["RequestsUnpublished"] = 0


def a_success_is_not_published(patch: Patch) -> None:
    handle = ClosedExecutions.handle
    patch.setattr(
        ClosedExecutions,
        "handle",
        lambda self, name, status, report: None if status == "SUCCEEDED" else handle(self, name, status, report),
    )


def the_workflow_answers(patch: Patch) -> None:
    def answer(state: dict[str, Any]) -> None:
        state["Resource"] = "arn:aws:states:::aws-sdk:sfn:sendTaskFailure"
        state["Arguments"] |= {"Error": "any", "Cause": "any"}

    change_state(patch, "AskCaller", answer)


PUBLISHES: dict[str, Any] = {"event_steps": True, "aim": "publishing"}
SENDER = {
    "marked before the answer": Control(marked_before_the_answer, _world(), 0, "S9"),
    "sent before the answer": Control(sent_before_the_answer, _world(), 0, "S9"),
    "answered before the outcome": Control(answered_before_the_outcome, _world(aim="ends"), 1, "S9"),
    "marked without an answer": Control(_counts_as_done(Endings, "_answered"), _world(**PUBLISHES), 1, "S9"),
    "marked without an event": Control(_counts_as_done(RequestEvents, "ended"), _world(**PUBLISHES), 1, "S9"),
    "marked without a notification": Control(
        _counts_as_done(Endings, "_notify"), _world(fails=1, **PUBLISHES), 1, "S9"
    ),
    "a failure is not notified": Control(set_to(FailureNotices, "publish", lambda *_: None), _world(fails=1), 0, "S9"),
    "may expire unpublished": Control(
        _recorded_with("' REMOVE place, deadline, expires, body", "', expires = :now REMOVE place, body"),
        _world(),
        0,
        "S9",
    ),
    "recorded again, may expire": Control(
        _recorded_with("deadline, expires", "deadline"), _world(aim="redrives"), 2, "S9"
    ),
    "the workflow answers": Control(the_workflow_answers, _world(), 0, "S9"),
    "the janitor repeats nothing": Control(
        set_to(Janitor, "_publish_ends", the_janitor_repeats_nothing), _world(**PUBLISHES), 1, "S4"
    ),
    "a success is not published": Control(a_success_is_not_published, _world(), 0, "S4"),
    "an end without a start is not published": Control(
        set_to(EndingQueue, "publish", lambda *_: None), _world(rejects=("a",)), 0, "S4"
    ),
    "the ends of a removed process are not published": Control(
        set_to(EndingQueue, "publish_all", lambda *_: None), _world(limits=(0,), replacements=1), 0, "S4"
    ),
    "a message that is no request is not published": Control(
        set_to(EndingQueue, "refused", lambda *_: None), _world(Sent("a", caller=True, malformed=True)), 0, "S9"
    ),
}

# Recording, redrives, returns --------------------------------------------------------------------------------------


def redriven_before_it_is_published(patch: Patch) -> None:
    is_published = "attribute_not_exists(#open)"
    replaced(returns, "REDRIVEN_CONDITION", is_published, f"({is_published} OR attribute_exists(#open))")(patch)
    patch.setattr(returns, "_kept_because", lambda row: "" if "body" in row else "no content")


def redriven_twice(patch: Patch) -> None:
    replaced(returns, "REDRIVEN_CONDITION", "#state = :seen", "(#state = :seen OR #state <> :seen)")(patch)
    replaced(returns, "REDRIVEN_CONDITION", " AND attribute_exists(body)")(patch)
    added = returns.Requeues._added

    def overwrite(self: returns.Requeues, row: Any) -> Any:
        part = added(self, row)
        del part["Put"]["ConditionExpression"]
        return part

    patch.setattr(returns.Requeues, "_added", overwrite)


def a_returned_request_loses_its_caller(patch: Patch) -> None:
    add = returns._next_attempt

    def forget(*given: Any, **more: Any) -> Any:
        row = add(*given, **more)
        row.pop("task_token", None)
        return row

    patch.setattr(returns, "_next_attempt", forget)


ROWS = {
    "recorded over another end": Control(
        replaced(outcomes, "FAILURE_CONDITION", "#state IN", "attribute_exists(execution) OR #state IN"),
        _world(fails=1, aim="ends"),
        1,
        "S7",
    ),
    "a succeeded run counts as failed": Control(set_to(Work, "has_succeeded", False), _world(aim="ends"), 1, "S7"),
    "redriven before it is published": Control(redriven_before_it_is_published, _world(fails=1, again=("a",)), 0, "S9"),
    "redriven twice": Control(redriven_twice, _world(A, fails=1, again=("a", "a"), rests=True), 0, "S3"),
    "redriven although it was discarded": Control(
        replaced(returns, "REDRIVEN_CONDITION", " AND attribute_exists(body)"),
        _world(A, fails=1, again=("a",), discards=("a",), rests=True),
        0,
        "S3",
    ),
    "discarded although it was redriven": Control(
        replaced(returns, "DISCARD_CONDITION", "attribute_exists(failed)", "attribute_exists(execution)"),
        _world(A, fails=1, again=("a",), discards=("a",), rests=True),
        0,
        "S3",
    ),
    "returned without its caller": Control(a_returned_request_loses_its_caller, _world(frees=1), 0, "S9"),
}
CONTROLS = SENDER | ROWS


@pytest.mark.parametrize("name", CONTROLS)
def test_without_its_guard_a_small_world_publishes_wrongly(name: str, monkeypatch: Patch) -> None:
    CONTROLS[name].check(monkeypatch)
