"""The judge of `slotkeeper audit`: each fault in the records fails exactly its check, and correct records none."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given

from slotkeeper.slots.process import Holder
from slotkeeper.slots.rate import Rate
from slotkeeper_cli.audit import judge
from slotkeeper_cli.audit.figures import hand_offs
from slotkeeper_cli.audit.history_checks import CheckResult, Result
from slotkeeper_cli.audit.work_history import (
    GLUE_RUN,
    Attempt,
    AuditBounds,
    Disturbance,
    ItemVersion,
    OperatorAct,
    RefusedMessage,
    Sending,
    WholeRun,
    WorkHistory,
    WorkInterval,
)
from slotkeeper_cli.unread import UnreadSource
from tests.cli.work_histories import (
    LIMIT,
    START,
    attempt,
    changed,
    clean,
    correct_histories,
    history,
    name,
    process,
    row,
    versions_of,
    whole,
    work,
)

ALL = ["limit", "accounted", "once", "freed", "order", "free"]


def results(of: WorkHistory) -> dict[str, CheckResult]:
    return {each.id: each for each in judge(of)}


def failing(of: WorkHistory) -> list[str]:
    return [each.id for each in judge(of) if each.result is Result.FAILS]


def not_shown(of: WorkHistory) -> list[str]:
    return [each.id for each in judge(of) if each.result is Result.NOT_SHOWN]


def test_clean_records_hold_in_every_check() -> None:
    assert {each.id: (each.result, each.examples) for each in judge(clean())} == {
        each: (Result.HOLDS, []) for each in ALL
    }


@given(correct_histories())
def test_what_a_correct_system_records_never_fails_unless_the_limit_is_below_its_peak(drawn: WorkHistory) -> None:
    assert failing(drawn) == []
    peaks = results(drawn)["limit"].numbers["processes"].get("sample", {})
    most = max((peak["weight"] for peak in peaks.values()), default=0)
    lower = replace(drawn, processes={"sample": process(most - 1)})
    assert ("limit" in failing(lower)) == (most > 0)


def _overlap(seconds: float, **fields: object) -> WorkHistory:
    """A third request starts in two slots, some time before the first one's work ends."""
    one, two = attempt("a", 0, 10), attempt("b", 0.5, 20)
    third = attempt("c", 9.7 - seconds, 5)
    works = [work(one), work(two), work(third, before=0.0)]
    return history([one, two, third], **{"work": works, **fields})


def _set_limit(at: float, before: int, after: int) -> OperatorAct:
    fields = {"before": before, "after": after}
    return OperatorAct(START + at, "process set-limit", "sample", "arn:operator", fields)


def _lowered(at: float = 60, later: int = 2) -> WorkHistory:
    """Three requests start in three slots, the limit is lowered to 1, and after ten minutes others start."""
    first = [attempt("a", 0, 300), attempt("b", 1, 300), attempt("c", 2, 300)]
    attempts = [*first, *[attempt("d", 700, 9), attempt("e", 702, 9)][:later]]
    return history(attempts, processes={"sample": process(1)}, acts=[_set_limit(at, 3, 1)])


def _holder(execution: str, **fields: object) -> Holder:
    return replace(Holder("RUNNING", int(START), "job", None, {}), **fields)  # type: ignore[arg-type]


def _late_holder(seconds: float) -> WorkHistory:
    """c was aborted 110.5 s after START, and its slot is still held."""
    held = process(slots_in_use=1, holders={name("c"): _holder(name("c"))})
    return replace(clean(), processes={"sample": held}, now=START + 110.5 + seconds)


def _second_run(after: float) -> WorkHistory:
    """A second Glue run of the first execution, some time after its first run's end."""
    ran = clean().work[0]
    assert ran.ended is not None
    again = replace(ran, started=ran.ended + after, ended=ran.ended + after + 0.1)
    return replace(clean(), work=[*clean().work, again])


def _again() -> WorkHistory:
    """The second attempt of a request that has succeeded."""
    second = attempt("a", 100, 5, attempt=2)
    return history([*clean().attempts, second])


def _stranded(status: str = "ABORTED") -> WorkHistory:
    """The execution of c ended long ago, and its row did not."""
    of = changed(clean(), "c", state="STARTED", ended=None)
    attempts = [replace(each, status=status) if each.execution == name("c") else each for each in of.attempts]
    return replace(of, attempts=attempts)


def _vanished() -> WorkHistory:
    """A request was started, and Step Functions has no execution of it."""
    return history(clean().attempts, row("x", 5, "STARTED", started=START + 6))


def _unlisted() -> WorkHistory:
    """The row of a request has an outcome, and Step Functions has no execution of it."""
    return history(clean().attempts, row("x", 5, "SUCCEEDED", started=START + 6, ended=START + 7))


def _rowless() -> WorkHistory:
    """An execution is listed, and has no row."""
    return history([*clean().attempts, replace(attempt("x", 200), row=None)])


def _returned() -> WorkHistory:
    """A request that was returned, and has no further attempt."""
    return history(clean().attempts, row("r", 200, "RETURNED", ended=START + 201))


def _overtaken(later: int = 500, **fields: object) -> WorkHistory:
    """b was granted its slot before a, which was sent minutes before, and was queued until then."""
    first = attempt("a", 700, sent=0, **fields)  # type: ignore[arg-type]
    return history([attempt("b", later, 10, sent=1), first], bounds=AuditBounds(free_slot=3600))


def _overtaken_in_the_queue() -> WorkHistory:
    """A request was granted its slot before one that is still queued."""
    bounds = AuditBounds(free_slot=10_000)
    return history([*clean().attempts, attempt("y", 500, sent=1)], row("z", -5), bounds=bounds)


def _idle() -> WorkHistory:
    """A request waits for a quarter of an hour while no slot is in use."""
    return history([*clean().attempts, attempt("late", 1000, 5, sent=100)])


def _idle_after_a_failure() -> WorkHistory:
    """The slots were free since two requests had failed, which were redriven later."""
    failed = [attempt(each, 0, 10, "FAILED", state="REDRIVEN", ended=START + 2000) for each in "ab"]
    again = [row(each, 2000, attempt=2) for each in "ab"]
    return history([*failed, attempt("late", 1500, 5, sent=100)], *again)


def _weight() -> WorkHistory:
    """Two requests of weight 2 in three units."""
    heavy = [attempt("a", 0, 10, weight=2), attempt("b", 5, 10, weight=2)]
    return history(heavy, processes={"sample": process(3)})


def _freed_late() -> WorkHistory:
    """The slot of c was freed long after it was aborted, by the versions of the item."""
    held = {name("c"): 1}
    times = [(0.0, {}), (10.4, held), (110.5 + 301, {})]
    versions = [ItemVersion(START + at, LIMIT, holders, frozenset(holders)) for at, holders in times]
    ended = [each for each in clean().attempts if each.execution == name("c")]
    run = WholeRun([Sending(name("c"), START - 4.8)], versions={"sample": versions})
    return history(ended, run=run)


FAULTS: dict[str, tuple[Callable[[], WorkHistory], str, str]] = {
    "an overlap of half a second": (lambda: _overlap(0.5), "limit", "3 of 2 at"),
    "a weight above the limit": (_weight, "limit", "4 of 3 at"),
    "a start after the limit was lowered": (_lowered, "limit", "2 of 1 at"),
    "an ended execution whose row has not": (_stranded, "accounted", "c, attempt 1 (sample) is STARTED, and its exec"),
    "a success whose row has not ended": (lambda: _stranded("SUCCEEDED"), "accounted", "its execution ended SUCCEEDED"),
    "a start without an execution": (_vanished, "accounted", "Step Functions has no execution of it"),
    "an outcome without an execution": (_unlisted, "accounted", "is SUCCEEDED, and Step Functions has no execution"),
    "an outcome that differs": (lambda: changed(clean(), "a", state="FAILED"), "accounted", "ended SUCCEEDED at"),
    "an execution without a row": (_rowless, "accounted", "and is SUCCEEDED, has no row"),
    "a returned request that is nowhere": (_returned, "accounted", "r, attempt 1 (sample) is RETURNED, and has no"),
    "a run after one that had succeeded": (lambda: _second_run(0.1), "once", "after one that had succeeded"),
    "an attempt after one that had succeeded": (_again, "once", "a, attempt 1 (sample) succeeded, and attempt 2"),
    "a present holder that has ended": (lambda: _late_holder(302), "freed", "still holds a slot"),
    "a slot that was freed late": (_freed_late, "freed", "its slot was free 5 min 1 s later"),
    "a grant before that of a request in front": (_overtaken, "order", "b, attempt 1 (sample) was granted a slot bef"),
    "a grant before a request that is still queued": (_overtaken_in_the_queue, "order", "before z, attempt 1"),
    "a free slot while a request waited": (_idle, "free", "sample: 11 min"),
    "a free slot after requests that were redriven since": (_idle_after_a_failure, "free", "sample: 19 min"),
}


@pytest.mark.parametrize(("made", "check", "example"), FAULTS.values(), ids=FAULTS)
def test_a_fault_in_the_records_fails_its_check_and_no_other(
    made: Callable[[], WorkHistory], check: str, example: str
) -> None:
    of = made()
    assert failing(of) == [check]
    assert example in results(of)[check].examples[0]


# -------------------------------------------------------------------------------------------------------- whole runs


def _changed(**fields: object) -> WorkHistory:
    return replace(whole(), **fields)  # type: ignore[arg-type]


def _known(**fields: object) -> WorkHistory:
    known = whole().run
    assert known is not None
    return _changed(run=replace(known, **fields))  # type: ignore[arg-type]


def _versions() -> list[ItemVersion]:
    return versions_of(whole().attempts)


def _sendings(request_id: str, **fields: object) -> WorkHistory:
    """The message of a request is another."""
    run = whole().run
    assert run is not None
    return _known(
        sendings=[
            replace(each, **fields) if each.execution == name(request_id) else each  # type: ignore[arg-type]
            for each in run.sendings
        ]
    )


def _started(attempts: list[Attempt]) -> WorkHistory:
    of = history(attempts, processes=whole().processes, bounds=whole().bounds, run=whole().run)
    assert of.run is not None
    return replace(of, run=replace(of.run, versions={"sample": versions_of(attempts)}))


def _later(request_id: str, seconds: float, disturbance: Disturbance | None = None) -> WorkHistory:
    """A request starts later than it could."""
    made = _started(
        [
            replace(each, started=each.started + seconds, stopped=(each.stopped or 0.0) + seconds)
            if each.execution == name(request_id)
            else each
            for each in whole().attempts
        ]
    )
    assert made.run is not None
    return replace(made, run=replace(made.run, disturbances=[disturbance] if disturbance else []))


def _dead_letters(*more: RefusedMessage) -> WorkHistory:
    return _known(dead_letters=[RefusedMessage("m-bad", "InvalidRequest", "not JSON"), *more])


def _unconfirmed() -> WorkHistory:
    return _known(versions={"sample": [replace(each, confirmed=each.confirmed - {name("b")}) for each in _versions()]})


def _dead(*janitor_runs: float) -> WorkHistory:
    """The slot of c, which was aborted at 110.5, is freed at 129; these janitor runs were complete."""
    freed = ItemVersion(START + 129, LIMIT, {})
    held = {name("c"): 1}
    versions = [replace(each, holders=held) if 110.3 < each.at - START < 129 else each for each in _versions()]
    return _known(
        versions={"sample": sorted([*versions, freed], key=lambda each: each.at)},
        janitor_runs=[(START + at, START + at + 1) for at in janitor_runs],
    )


def _left_holder() -> WorkHistory:
    return _changed(processes={"sample": process(3, holders={name("z"): _holder(name("z"))})})


WHOLE_RUN_FAULTS: dict[str, tuple[Callable[[], WorkHistory], list[str], str]] = {
    "a message left": (lambda: _known(queued=2), ["accounted"], "2 messages left on RequestQueue"),
    "a request that is nowhere": (
        lambda: _started([each for each in whole().attempts if each.execution != name("d")]),
        ["accounted"],
        "neither a row nor a dead-letter message",
    ),
    "a started request at the end": (
        lambda: _changed(rows=[*whole().rows, row("a2", 1, "STARTED", attempt=2, started=START + 1.5)]),
        ["accounted"],
        "is STARTED at the end",
    ),
    "a request that was not sent": (
        lambda: _changed(rows=[*whole().rows, row("x", 1, "SKIPPED", ended=START + 2)]),
        ["accounted"],
        "was not sent",
    ),
    "an unexpected success": (lambda: _sendings("a", outcome="FAILED"), ["accounted"], "SUCCEEDED, expected FAILED"),
    "another dead letter": (lambda: _sendings("bad", outcome="CANCELLED"), ["accounted"], "expected CANCELLED"),
    "a request that is dead-lettered too": (
        lambda: _sendings("a", message_id="m-bad"),
        ["accounted"],
        "was dead-lettered although it has a row",
    ),
    "dead-lettered twice": (
        lambda: _dead_letters(RefusedMessage("m-bad", "E", "reason")),
        ["accounted"],
        "was dead-lettered twice",
    ),
    "dead-lettered without a reason": (
        lambda: _dead_letters(RefusedMessage("m-2", "E", "")),
        ["accounted"],
        "without a reason",
    ),
    "an end that is not published": (
        lambda: changed(whole(), "b", open=-START),
        ["accounted"],
        "is FAILED, and its end is not published",
    ),
    "a success without a run": (
        lambda: _changed(work=[replace(each, succeeded=False) for each in whole().work]),
        ["once"],
        "nothing that it ran did",
    ),
    "a run without a confirmed slot": (_unconfirmed, ["limit"], "without a confirmed slot"),
    "a weight above the limit before it was raised": (
        lambda: _known(versions={"sample": versions_of(whole().attempts, raised=131)}),
        ["limit"],
        "3 of 2 at",
    ),
    "a slot that two janitor runs left": (lambda: _dead(115, 120), ["freed"], "after 2 complete janitor runs"),
    "a holder at the end": (_left_holder, ["freed"], "holds a slot at the end"),
    "an urgent request long after it fitted": (lambda: _later("h", 6), ["free"], "sample: 6"),
}


@pytest.mark.parametrize(("made", "checks", "example"), WHOLE_RUN_FAULTS.values(), ids=WHOLE_RUN_FAULTS)
def test_a_fault_in_a_whole_run_fails_its_checks(
    made: Callable[[], WorkHistory], checks: list[str], example: str
) -> None:
    of = made()
    assert failing(of) == checks
    assert any(example in each for check in checks for each in results(of)[check].examples)


WHOLE_RUN_NOT_FAULTS: dict[str, Callable[[], WorkHistory]] = {
    "as expected": whole,
    "a janitor run that only checks": lambda: _dead(115),
    "a janitor run within the grace time": lambda: _dead(111, 115),
    "a fault that may be the cause": lambda: _later("h", 9, Disturbance(START + 131, START + 132)),
}


@pytest.mark.parametrize("made", WHOLE_RUN_NOT_FAULTS.values(), ids=WHOLE_RUN_NOT_FAULTS)
def test_what_may_be_right_in_a_whole_run_holds(made: Callable[[], WorkHistory]) -> None:
    assert {each.id: (each.result, each.examples) for each in judge(made())} == {
        each: (Result.HOLDS, []) for each in ALL
    }


def test_a_whole_run_whose_glue_runs_could_not_be_read_fails_nothing() -> None:
    lacking = replace(whole(), work=[], not_read=[UnreadSource("Glue runs", "AccessDenied")])
    assert (failing(lacking), not_shown(lacking)) == ([], ["limit", "once", "freed"])


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
    assert (failing(_later("h", 70, disturbance)) == []) is is_excused


@pytest.mark.parametrize(("process_of_fault", "result"), [("", Result.HOLDS), ("another", Result.FAILS)])
def test_a_request_that_waited_during_a_known_fault_may_be_passed(process_of_fault: str, result: Result) -> None:
    """A starter that dies may leave no note of what it put back."""
    run = WholeRun(disturbances=[Disturbance(START + 100, START + 101, process_of_fault)])
    assert results(replace(_overtaken(), run=run))["order"].result is result


def test_a_hand_off_of_a_whole_run_begins_when_the_request_had_the_turn() -> None:
    gaps = [(round(at - START, 2), round(seconds, 2)) for at, seconds in hand_offs(whole(), "sample")]
    assert gaps == [(10.5, 0.6), (13.5, 0.6), (130.2, 0.2)]


def test_one_execution_never_has_two_runs_at_the_same_time() -> None:
    one = attempt("a", 0, None)
    assert failing(history([one], work=[WorkInterval(one.execution, GLUE_RUN, START + at) for at in (1, 2)])) == [
        "once"
    ]


def _whole(seconds: float) -> WorkHistory:
    made = _overlap(seconds)
    return replace(
        made,
        work=[replace(each, started=float(int(each.started)), ended=float(int(each.ended or 0))) for each in made.work],
    )


def _pause(at: float, action: str = "pause") -> OperatorAct:
    return OperatorAct(START + at, f"process {action}", "sample")


def _failed_first() -> WorkHistory:
    first, *others = _second_run(0.1).work
    return replace(clean(), work=[replace(first, succeeded=False), *others])


def _rounded_up() -> WorkHistory:
    """A run starts some milliseconds after the end of another, whose time was rounded up."""
    first, *others = (made := _overlap(-0.02)).work
    return replace(made, work=[replace(first, ended=float(math.ceil(first.ended or 0))), *others])


def _redriven() -> WorkHistory:
    """The first attempt failed, the second started, and then the first execution was redriven and succeeded."""
    first, second = attempt("a", 0, 90), attempt("a", 50, 5, attempt=2)
    return history([first, second], processes={"sample": process(2)})


def _raised() -> WorkHistory:
    """The limit was 1 long ago. Three requests run later."""
    attempts = [attempt("a", 700, 9), attempt("b", 701, 5), attempt("c", 720, 9, weight=3)]
    return history(attempts, processes={"sample": process(3)}, acts=[_set_limit(60, 1, 3)])


def _heavy_head() -> WorkHistory:
    """One slot is free, and the head of the queue needs two."""
    running = attempt("long", 112, None, sent=40)
    return history([*clean().attempts[:4], running], row("heavy", 50, priority="high", weight=2), row("light", 100))


NOT_FAULTS: dict[str, Callable[[], WorkHistory]] = {
    "half a second that whole seconds may have added": lambda: _whole(0.5),
    "an end that was rounded up": _rounded_up,
    "the limit was lowered while they ran": lambda: _lowered(later=1),
    "admitted before the limit was lowered": lambda: _lowered(at=690),
    "the limit was higher": lambda: _overlap(0.5, acts=[_set_limit(500, 3, 2)]),
    "an abort that the janitor still settles": lambda: replace(_stranded(), now=START + 400),
    "a holder that the janitor still frees": lambda: _late_holder(250),
    "a start that Step Functions does not show yet": lambda: replace(_vanished(), now=START + 60),
    "a returned request with its next attempt": lambda: replace(
        _returned(), rows=[*_returned().rows, row("r", 200, "CANCELLED", attempt=2, ended=START + 260)]
    ),
    "a request that was put back": lambda: _overtaken(put_back=10**6 + 600_000),
    "a request that was perhaps not received": lambda: _overtaken(later=350),
    "a request that was perhaps blocked": lambda: replace(_overtaken(weight=2), acts=[_set_limit(400, 1, 2)]),
    "a grant that was not recorded": lambda: _overtaken(granted=""),
    "a request that has its slot and is still queued": lambda: replace(
        _overtaken_in_the_queue(), processes={"sample": process(holders={name("z"): _holder(name("z"))})}
    ),
    "a request whose name an earlier execution has": lambda: changed(
        clean(), "a", sent=START + 50, state="REJECTED", code="NameTaken", started=None, granted="", ended=START + 51
    ),
    "a request that was returned a moment ago": lambda: replace(_returned(), now=START + 400),
    "a run that failed before": _failed_first,
    "an execution that succeeded after the next attempt": _redriven,
    "a limit that was raised": _raised,
    "a free slot that does not fit the head of the queue": _heavy_head,
    "a rate": lambda: replace(_idle(), processes={"sample": process(rate=Rate(60, 3600))}),
    "a rate that was removed": lambda: replace(_idle(), acts=[OperatorAct(START + 500, "process set-rate", "sample")]),
    "a paused process": lambda: replace(_idle(), acts=[_pause(90), _pause(999, "resume")]),
}


@pytest.mark.parametrize("made", NOT_FAULTS.values(), ids=NOT_FAULTS)
def test_what_may_be_right_never_fails(made: Callable[[], WorkHistory]) -> None:
    assert failing(made()) == []


def test_waits_of_a_process_with_a_rate_show_nothing_of_free_slots() -> None:
    paced = replace(clean(), processes={"sample": process(rate=Rate(60, 3600))})
    assert results(paced)["free"].result is Result.NOT_SHOWN
    assert results(paced)["free"].numbers["waits_known"] == 0


NEEDS = {
    "executions": ["limit", "accounted", "once", "freed"],
    "RequestTable": ["limit", "accounted", "once", "order", "free"],
    "Glue runs": ["limit", "once", "freed"],
    "child executions": ["limit", "once", "freed"],
    "SlotTable": ["limit", "freed", "free"],
    "AuditLogGroup": ["limit", "free"],
}


@pytest.mark.parametrize(("source", "checks"), NEEDS.items(), ids=NEEDS)
def test_a_check_without_its_records_is_not_shown(source: str, checks: list[str]) -> None:
    lacking = replace(clean(), not_read=[UnreadSource(source, "AccessDenied")])
    assert not_shown(lacking) == checks


def test_of_records_that_lack_a_part_nothing_fails_that_needs_it() -> None:
    for made, source in ((_unlisted, "executions"), (_rowless, "RequestTable"), (_idle, "RequestTable")):
        assert failing(replace(made(), not_read=[UnreadSource(source, "the first ones were read")])) == []


def test_the_weight_of_an_execution_without_a_row_is_not_known() -> None:
    assert not_shown(_rowless()) == ["limit", "once"]


def test_a_limit_that_changed_without_an_audit_line_is_not_known() -> None:
    of = _lowered()
    changed = replace(of, processes={"sample": process(2)})
    assert (failing(of), failing(changed)) == (["limit"], [])
    assert "limit" in not_shown(changed)


def test_limit_and_rate_of_a_process_that_was_added_a_moment_ago_are_known() -> None:
    """Nothing was admitted before."""
    added = OperatorAct(START - 1, "process add", "sample", "arn:operator", {"limit": 2})
    assert results(replace(_paced(0, 0, 10), acts=[added], bounds=AuditBounds()))["rate"].numbers["processes"] == {
        "sample": {"rate": str(SIX_A_MINUTE), "starts": 3}
    }
    assert results(replace(clean(), acts=[added]))["limit"].result is Result.HOLDS
    assert failing(_overlap(0.5, acts=[added])) == ["limit"]


def test_a_restore_leaves_the_limit_that_the_item_states() -> None:
    restored = replace(clean(), acts=[OperatorAct(START - 3600, "stack restore", "", "arn:operator")])
    assert results(restored)["limit"].result is Result.HOLDS


def test_shorter_bounds_can_be_given() -> None:
    assert failing(replace(clean(), bounds=AuditBounds(free_slot=0.1))) == ["free"]


# ------------------------------------------------------------------------------------------------------------- rates

SIX_A_MINUTE = Rate(6, 60, 2)
EXACT = AuditBounds(reservation=-5.0)  # without the difference of two clocks


def _paced(*seconds: float, rate: Rate | None = SIX_A_MINUTE, **fields: object) -> WorkHistory:
    """Requests that started so many seconds after START."""
    attempts = [attempt(f"r{number}", at, 1) for number, at in enumerate(seconds)]
    return history(attempts, **{"processes": {"sample": process(9, rate=rate)}, "bounds": EXACT, **fields})


@pytest.mark.parametrize(
    ("seconds", "result"),
    [
        ((0, 0, 10, 20, 30), Result.HOLDS),
        ((0, 0, 9.9), Result.FAILS),
        ((0, 100, 200, 200, 205), Result.FAILS),
        ((0, 100, 200, 200, 210), Result.HOLDS),
        ((0,), Result.NOT_SHOWN),
    ],
)
def test_more_starts_than_the_rate_allows_fail(seconds: tuple[float, ...], result: Result) -> None:
    assert results(_paced(*seconds))["rate"].result is result


def test_a_failure_names_the_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    (example,) = results(_paced(0, 100, 200, 200, 205))["rate"].examples
    assert example.startswith("sample: 3 starts within 5 s from ")
    assert example.endswith("its rate is 6/minute, burst 2")


def test_starts_that_were_granted_earlier_are_no_failure() -> None:
    """After six minutes the janitor would have freed a reservation without an execution."""
    many = [n / 10 for n in range(35)]
    assert results(_paced(*many, bounds=AuditBounds()))["rate"].result is Result.HOLDS
    assert results(_paced(*many, *many, bounds=AuditBounds()))["rate"].result is Result.FAILS


def test_starts_before_the_rate_was_set_are_left_out() -> None:
    change = OperatorAct(START + 100, "process set-rate", "sample")
    assert results(_paced(0, 0, 0, 0, 200, acts=[change]))["rate"].result is Result.NOT_SHOWN
    assert results(_paced(0, 0, 200, 200, 200, acts=[change]))["rate"].result is Result.FAILS


def test_without_the_audit_log_it_is_not_shown() -> None:
    unread = (UnreadSource("AuditLogGroup", "denied"),)
    assert results(replace(_paced(0, 10, 20), not_read=unread))["rate"].result is Result.NOT_SHOWN


@pytest.mark.parametrize(("rate", "fails"), [(None, ["free"]), (SIX_A_MINUTE, [])], ids=str)
def test_a_request_may_wait_for_the_rate_while_a_slot_is_free(rate: Rate | None, fails: list[str]) -> None:
    of = changed(_paced(0, 1200, rate=rate, bounds=AuditBounds()), "r1", sent=START + 1)
    assert failing(of) == fails


def test_without_a_rate_there_is_no_such_check() -> None:
    assert "rate" not in results(_paced(0, 0, rate=None))
