"""What a run knows beyond the records: each fault that only it can see fails its check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from dev.judge.slot_item import Holder, Item
from dev.scenarios.runner.whole_run import (
    Disturbance,
    RefusedMessage,
    Sending,
    WholeRun,
    changes_of_limits,
    hand_offs,
    judge_run,
)
from slotkeeper.slots.process import Holder as ProcessHolder
from slotkeeper_cli.audit.check_result import CheckResult, Result
from slotkeeper_cli.audit.work_history import Attempt, AuditBounds, WorkHistory
from slotkeeper_cli.unread import UnreadSource
from tests.command.work_histories import LIMIT, START, attempt, changed, clean, history, name, process, row

BOUNDS = AuditBounds(intake=1.0, free_slot=5.0)
MALFORMED = RefusedMessage("m-bad", "InvalidRequest", "not JSON")
CHECKS = ["limit", "accounted", "once", "freed", "order", "free"]


@dataclass(frozen=True)
class Known:
    """A run with what it knows."""

    history: WorkHistory
    run: WholeRun

    def results(self) -> dict[str, CheckResult]:
        return {each.id: each for each in judge_run(self.history, self.run)}

    def failing(self) -> list[str]:
        return [each.id for each in judge_run(self.history, self.run) if each.result is Result.FAILS]


def whole(attempts: Sequence[Attempt] = (), raised: float = 130.0) -> Known:
    """The requests of `clean` that have ended, a malformed message, and a heavy request.

    The heavy request is above the limit, until it is raised from 2 to 3.
    """
    all_of_it = [*clean().attempts[:4], attempt("h", 130.2, 9, sent=90, priority="high", weight=3)]
    outcomes = ["SUCCEEDED", "FAILED", "FAILED", "SUCCEEDED", "SUCCEEDED"]
    sent = [
        Sending(each.execution, each.row.sent if each.row else 0.0, outcome)
        for each, outcome in zip(all_of_it, outcomes, strict=True)
    ]
    items = items_of(attempts or all_of_it, raised)
    sendings = [*sent, Sending(name("bad"), START + 1, "InvalidRequest", "m-bad")]
    run = WholeRun(sendings, items, [MALFORMED], disturbed=60.0, janitor_runs=[], grace=2.0)
    acts = changes_of_limits(items)
    made = history(attempts or all_of_it, processes={"sample": process(3)}, acts=acts, bounds=BOUNDS)
    return Known(made, run)


def items_of(attempts: Sequence[Attempt], raised: float = 130.0) -> list[Item]:
    """What these executions write: reserved before the start, confirmed after it, freed before the end, by 0.1 s."""
    changes: list[tuple[float, str, int, str]] = [(START + raised, "", 1, "")]
    for each in attempts:
        weight = (each.row.weight if each.row else None) or 1
        changes.append((each.started - 0.1, each.execution, weight, "RESERVED"))
        changes.append((each.started + 0.1, each.execution, weight, "RUNNING"))
        changes.append(((each.stopped or 0.0) - 0.1, each.execution, 0, ""))
    limit, holders = LIMIT, dict[str, Holder]()
    made = [Item("sample", LIMIT, 0, {}, at=START - 60)]
    for at, execution, weight, state in sorted(changes):
        if not execution:
            limit += weight
        elif weight:
            holders[execution] = Holder(state, weight=weight)
        else:
            del holders[execution]
        made.append(Item("sample", limit, sum(each.weight for each in holders.values()), dict(holders), at=at))
    return made


def _changed(**fields: object) -> Known:
    return replace(whole(), history=replace(whole().history, **fields))  # type: ignore[arg-type]


def _known(**fields: object) -> Known:
    return replace(whole(), run=replace(whole().run, **fields))  # type: ignore[arg-type]


def _sendings(request_id: str, **fields: object) -> Known:
    """The message of a request is another."""
    return _known(
        sendings=[
            replace(each, **fields) if each.execution == name(request_id) else each  # type: ignore[arg-type]
            for each in whole().run.sendings
        ]
    )


def _later(request_id: str, seconds: float, *disturbances: Disturbance) -> Known:
    """A request starts later than it could."""
    made = whole(
        [
            replace(each, started=each.started + seconds, stopped=(each.stopped or 0.0) + seconds)
            if each.execution == name(request_id)
            else each
            for each in whole().history.attempts
        ]
    )
    return replace(made, run=replace(made.run, disturbances=disturbances))


def _unconfirmed() -> Known:
    items = [
        replace(
            each, holders={k: v._replace(state="RESERVED") if k == name("b") else v for k, v in each.holders.items()}
        )
        for each in whole().run.items
    ]
    return _known(items=items)


def _dead(*janitor_runs: float) -> Known:
    """The slot of c, which was aborted at 110.5, is freed at 129; these janitor runs were complete."""
    held = {name("c"): Holder("RUNNING")}
    items = [replace(each, holders=held) if 110.3 < each.at - START < 129 else each for each in whole().run.items]
    items = sorted([*items, Item("sample", LIMIT, 0, {}, at=START + 129)], key=lambda each: each.at)
    return _known(items=items, janitor_runs=[(START + at, START + at + 1) for at in janitor_runs])


def _left_holder() -> Known:
    holder = ProcessHolder("RUNNING", int(START), "job", None, {})
    return _changed(processes={"sample": process(3, holders={name("z"): holder})})


FAULTS: dict[str, tuple[Callable[[], Known], str, str]] = {
    "a message left": (lambda: _known(queued=2), "accounted", "2 messages left on RequestQueue"),
    "a request that is nowhere": (
        lambda: whole([each for each in whole().history.attempts if each.execution != name("d")]),
        "accounted",
        "neither a row nor a dead-letter message",
    ),
    "a started request at the end": (
        lambda: _changed(rows=[*whole().history.rows, row("a2", 1, "STARTED", attempt=2, started=START + 1.5)]),
        "accounted",
        "is STARTED at the end",
    ),
    "a request that was not sent": (
        lambda: _changed(rows=[*whole().history.rows, row("x", 1, "SKIPPED", ended=START + 2)]),
        "accounted",
        "was not sent",
    ),
    "an unexpected success": (lambda: _sendings("a", outcome="FAILED"), "accounted", "SUCCEEDED, expected FAILED"),
    "another dead letter": (lambda: _sendings("bad", outcome="CANCELLED"), "accounted", "expected CANCELLED"),
    "a request that is dead-lettered too": (
        lambda: _sendings("a", message_id="m-bad"),
        "accounted",
        "was dead-lettered although it has a row",
    ),
    "dead-lettered twice": (lambda: _known(dead_letters=[MALFORMED] * 2), "accounted", "was dead-lettered twice"),
    "dead-lettered without a reason": (
        lambda: _known(dead_letters=[MALFORMED, RefusedMessage("m-2", "E", "")]),
        "accounted",
        "without a reason",
    ),
    "an end that is not published": (
        lambda: replace(whole(), history=changed(whole().history, "b", open=-START)),
        "accounted",
        "is FAILED, and its end is not published",
    ),
    "a success without a run": (
        lambda: _changed(work=[replace(each, succeeded=False) for each in whole().history.work]),
        "once",
        "nothing that it ran did",
    ),
    "a run without a confirmed slot": (_unconfirmed, "limit", "without a confirmed slot"),
    "a slot that two janitor runs left": (lambda: _dead(115, 120), "freed", "after 2 complete janitor runs"),
    "a holder at the end": (_left_holder, "freed", "holds a slot at the end"),
    "an urgent request long after it fitted": (lambda: _later("h", 6), "free", "sample: 6"),
}


@pytest.mark.parametrize(("made", "check", "example"), FAULTS.values(), ids=FAULTS)
def test_a_fault_fails_its_check_and_no_other(made: Callable[[], Known], check: str, example: str) -> None:
    assert made().failing() == [check]
    assert any(example in each for each in made().results()[check].examples)


NOT_FAULTS: dict[str, Callable[[], Known]] = {
    "as expected": whole,
    "a janitor run that only checks": lambda: _dead(115),
    "a janitor run within the grace time": lambda: _dead(111, 115),
    "a fault that may be the cause": lambda: _later("h", 9, Disturbance(START + 131, START + 132)),
}


@pytest.mark.parametrize("made", NOT_FAULTS.values(), ids=NOT_FAULTS)
def test_what_may_be_right_holds(made: Callable[[], Known]) -> None:
    assert {each.id: (each.result, each.examples) for each in made().results().values()} == {
        each: (Result.HOLDS, []) for each in CHECKS
    }


def test_a_run_whose_glue_runs_could_not_be_read_fails_nothing() -> None:
    lacking = _changed(work=[], not_read=[UnreadSource("Glue runs", "AccessDenied")])
    not_shown = [each.id for each in lacking.results().values() if each.result is Result.NOT_SHOWN]
    assert (lacking.failing(), not_shown) == ([], ["limit", "once", "freed"])


@pytest.mark.parametrize(
    ("disturbance", "is_excused"),
    [
        (Disturbance(START + 131, START + 132), False),
        (Disturbance(START + 135, START + 165, is_outage=True), True),
        (Disturbance(START + 135, START + 165, "another", is_outage=True), False),
        (Disturbance(START + 300, START + 365, is_outage=True), False),
    ],
)
def test_a_wait_above_the_bound_of_faults_is_excused_by_an_outage_alone(
    disturbance: Disturbance, is_excused: bool
) -> None:
    assert (_later("h", 70, disturbance).failing() == []) is is_excused


def test_a_hand_off_begins_when_the_request_had_the_turn() -> None:
    gaps = hand_offs(whole().history, whole().run, "sample")
    assert [(round(at - START, 2), round(seconds, 2)) for at, seconds in gaps] == [
        (10.5, 0.6),
        (13.5, 0.6),
        (130.2, 0.2),
    ]


def test_limits_and_pauses_of_a_run_are_those_of_its_items() -> None:
    items = [
        Item("sample", 1, 0, {}, at=1),
        Item("sample", 2, 0, {}, at=2, paused=True),
        Item("sample", 2, 0, {}, at=3),
    ]
    acts = [(each.at, each.action) for each in changes_of_limits(items)]
    assert acts == [(2, "process set-limit"), (2, "process pause"), (3, "process resume")]
