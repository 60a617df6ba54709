"""The judge of `slotkeeper audit`: each fault in the records fails exactly its check, and correct records none.

Of each rule that keeps correct records from failing, or wrong ones from holding, the tables have a control. Random
histories are in tests/simulation/test_audit_of_random_schedules.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from slotkeeper.slots.process import Holder
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request_table import granted_as
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.audit import judge
from slotkeeper_cli.audit.check_result import CheckResult, Result
from slotkeeper_cli.audit.work_history import (
    CHILD,
    GLUE_RUN,
    AuditBounds,
    OperatorAct,
    WorkHistory,
    WorkInterval,
    grant_of,
)
from slotkeeper_cli.unread import UnreadSource
from tests.command.work_histories import START, attempt, changed, clean, history, name, process, row, work

ALL = ["limit", "accounted", "once", "freed", "order", "free"]
SIX_A_MINUTE = Rate(6, 60, 2)


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


# --------------------------------------------------------------------------------------------------------- limit


def _overlap(seconds: float, **fields: object) -> WorkHistory:
    """A third request starts in two slots, some time before the first one's work ends."""
    one, two = attempt("a", 0, 10), attempt("b", 0.5, 20)
    third = attempt("c", 9.7 - seconds, 5)
    return history([one, two, third], **{"work": [work(one), work(two), work(third, before=0.0)], **fields})


def _whole_seconds(seconds: float) -> WorkHistory:
    made = _overlap(seconds)
    works = [replace(each, started=float(int(each.started)), ended=float(int(each.ended or 0))) for each in made.work]
    return replace(made, work=works)


def _rounded_up() -> WorkHistory:
    """A run starts some milliseconds after the end of another, whose time was rounded up."""
    first, *others = (made := _overlap(-0.02)).work
    return replace(made, work=[replace(first, ended=float(math.ceil(first.ended or 0))), *others])


def _rounded_down() -> WorkHistory:
    """A run starts some milliseconds after the end of another. The time of its start was rounded down."""
    *others, last = (made := _overlap(-0.02)).work
    return replace(made, work=[*others, replace(last, started=float(math.floor(last.started)))])


def _act(at: float, action: str, **fields: object) -> OperatorAct:
    return OperatorAct(START + at, f"process {action}", "sample", "arn:operator", fields)


def _lowered(at: float = 60, later: int = 2) -> WorkHistory:
    """Three requests start in three slots, the limit is lowered to 1, and after twelve minutes others start."""
    first = [attempt("a", 0, 300), attempt("b", 1, 300), attempt("c", 2, 300)]
    attempts = [*first, *[attempt("d", 800, 9), attempt("e", 802, 9)][:later]]
    return history(attempts, processes={"sample": process(1)}, acts=[_act(at, "set-limit", before=3, after=1)])


def _weight() -> WorkHistory:
    """Two requests of weight 2 in three units."""
    return history([attempt("a", 0, 10, weight=2), attempt("b", 5, 10, weight=2)], processes={"sample": process(3)})


def _two_kinds(seconds: float) -> WorkHistory:
    """In one slot a child starts so long before the end of a Glue run: the target was changed meanwhile."""
    one, two = attempt("a", 0, 300), attempt("b", 300 - seconds, 300)
    return history([one, two], processes={"sample": process(1)}, work=[work(one), work(two, CHILD)])


def _redriven_child(*others: float) -> WorkHistory:
    """The child of a was redriven at 1000 s, outside of any slot, while others ran. Before, it ran until 300 s."""
    of = [attempt("a", 0, 300, "FAILED"), *(attempt(f"b{at}", at, 600) for at in others)]
    again = WorkInterval(of[0].execution, CHILD, START + 1000, START + 1500, succeeded=True, redriven=True)
    works = [again, *(work(each, CHILD) for each in of[1:])]
    return history(of, processes={"sample": process(1)}, work=works)


# ------------------------------------------------------------------------------------------------- accounted, once


def _stranded(status: str = "ABORTED") -> WorkHistory:
    """The execution of c ended long ago, and its row did not."""
    of = changed(clean(), "c", state="STARTED", ended=None)
    attempts = [replace(each, status=status) if each.execution == name("c") else each for each in of.attempts]
    return replace(of, attempts=attempts)


def _vanished() -> WorkHistory:
    """A request was started, and Step Functions has no execution of it."""
    return history(clean().attempts, row("x", 5, "STARTED", started=START + 6))


def _rowless(*, redriven: bool = False) -> WorkHistory:
    """An execution is listed, and has no row."""
    return history([*clean().attempts, replace(attempt("x", 200), row=None, redriven=redriven)])


def _returned(*more: str) -> WorkHistory:
    """A request that was returned, and attempts after it in these states."""
    again = [row("r", 200, state, attempt=at, ended=START + 260) for at, state in enumerate(more, 2)]  # type: ignore[arg-type]
    return history(clean().attempts, row("r", 200, "RETURNED", ended=START + 201), *again)


def _second_run(after: float, *, succeeded: bool = True) -> WorkHistory:
    """A second Glue run of the first execution, some time after its first run's end."""
    first, *others = clean().work
    assert first.ended is not None
    again = replace(first, started=first.ended + after, ended=first.ended + after + 0.1)
    return replace(clean(), work=[replace(first, succeeded=succeeded), *others, again])


def _two_runs() -> WorkHistory:
    one = attempt("a", 0, None)
    return history([one], work=[WorkInterval(one.execution, GLUE_RUN, START + at) for at in (1, 2)])


def _again(state: str = "SUCCEEDED", first: str = "m-1", second: str = "m-1") -> WorkHistory:
    """The second attempt of a request that has ended, of these messages."""
    ended = attempt("a", 0, 10, state=state, message_id=first)
    return history([ended, attempt("a", 100, 5, attempt=2, message_id=second)])


def _redriven_execution() -> WorkHistory:
    """The first attempt failed, the second started, and then the first execution was redriven and succeeded."""
    first, second = attempt("a", 0, 90, state="REDRIVEN", ended=START + 20), attempt("a", 50, 5, attempt=2)
    return history([replace(first, redriven=True), second], processes={"sample": process(2)})


# --------------------------------------------------------------------------------------------------- freed, order


def _holding(**fields: object) -> Holder:
    return replace(Holder("RUNNING", int(START), "job", None, {}), **fields)  # type: ignore[arg-type]


def _late_holder(seconds: float, since: float = 0.0) -> WorkHistory:
    """c was aborted 110.5 s after START, and its slot is still held."""
    held = process(slots_in_use=1, holders={name("c"): _holding(since=int(START + since))})
    return replace(clean(), processes={"sample": held}, now=START + 110.5 + seconds)


def _overtaken(later: int = 500, *, intake: bool = True, **fields: object) -> WorkHistory:
    """b was granted its slot before a, which was sent minutes before, and was queued until then.

    Args:
        intake: whether the start of a third request shows that messages were received.
    """
    first = attempt("a", 700, sent=0, **fields)  # type: ignore[arg-type]
    third = [attempt("c", 2.4, 5, sent=2, priority="high")] if intake else []
    return history([*third, attempt("b", later, 10, sent=1), first], bounds=AuditBounds(free_slot=3600))


def _overtaken_in_the_queue(**fields: object) -> WorkHistory:
    """A request was granted its slot before one that is still queued."""
    attempts = [*clean().attempts, attempt("y", 500, sent=1)]
    return history(attempts, row("z", -5), **{"bounds": AuditBounds(free_slot=10_000), **fields})


def _with_another_grant(of: WorkHistory, request_id: str) -> WorkHistory:
    """The same, after a change of `grants` that no row has, before the grant of a request."""
    own = of.row(name(request_id))
    last = of.processes["sample"].grants
    number = grant_of(own) if own and own.granted else last + 1
    rows = [
        replace(each, granted=granted_as(grant_of(each) + 1, 0)) if grant_of(each) >= number else each
        for each in of.rows
    ]
    return replace(of, rows=rows, processes={"sample": replace(of.processes["sample"], grants=last + 1)})


def _keys(*others: RequestRow, at: float = 490, **item: object) -> WorkHistory:
    """A request of key a starts at 490 s, while another one of it runs, which began at 5 s."""
    of_a = [attempt("a0", 5, 595, key="a"), attempt("a", at, 5, sent=2, key="a")]
    acts = item.pop("acts", ())
    given = {"processes": {"sample": process(3, **item)}, "bounds": AuditBounds(free_slot=3600), "acts": acts}
    return history([*of_a, attempt("b", 400, 5, sent=20, key="b")], *others, **given)


# ------------------------------------------------------------------------------------------------------------- free


def _idle(started: float = 1000, **fields: object) -> WorkHistory:
    """A request waits for a quarter of an hour while no slot is in use."""
    return history([*clean().attempts, attempt("late", started, 5, sent=100)], **fields)


def _idle_after_a_failure() -> WorkHistory:
    """The slots were free since two requests had failed, which were redriven later."""
    failed = [attempt(each, 0, 10, "FAILED", state="REDRIVEN") for each in "ab"]
    again = [row(each, 2000, attempt=2) for each in "ab"]
    return history([*failed, attempt("late", 1500, 5, sent=100)], *again)


def _idle_from_the_begin() -> WorkHistory:
    """No request had a slot before, so a lease that began earlier may have had it."""
    return history([attempt("late", 1000, 5, sent=100)])


def _many_holders(number: int) -> WorkHistory:
    """So many requests have run for an hour in a thousand slots, and another one waits."""
    many = [attempt(f"r{at}", at / 1000, None) for at in range(number)]
    return history(many, row("waits", 100), processes={"sample": process(1000)})


def _raised() -> WorkHistory:
    """The limit was 1 long ago. Three requests run later."""
    attempts = [attempt("a", 700, 9), attempt("b", 701, 5), attempt("c", 720, 9, weight=3)]
    return history(attempts, processes={"sample": process(3)}, acts=[_act(60, "set-limit", before=1, after=3)])


def _heavy_head(**fields: object) -> WorkHistory:
    """One slot is free, and the head of the queue needs two."""
    running, light = attempt("long", 112, None, sent=40), attempt("light", 3000, 5, sent=100)
    head = row("heavy", 50, **{"priority": "high", "weight": 2, **fields})  # type: ignore[arg-type]
    return history([*clean().attempts[:4], running, light], head)


FAULTS: dict[str, tuple[Callable[[], WorkHistory], str, str]] = {
    "an overlap of half a second": (lambda: _overlap(0.5), "limit", "3 of 2 at"),
    "a weight above the limit": (_weight, "limit", "4 of 3 at"),
    "a start after the limit was lowered": (_lowered, "limit", "2 of 1 at"),
    "a Glue run next to a child": (lambda: _two_kinds(200), "limit", "2 of 1 at"),
    "two in a slot, next to a redriven child": (lambda: _redriven_child(1100, 1200), "limit", "2 of 1 at"),
    "an ended execution whose row has not": (_stranded, "accounted", "c, attempt 1 (sample) is STARTED, and its exec"),
    "a success whose row has not ended": (lambda: _stranded("SUCCEEDED"), "accounted", "its execution ended SUCCEEDED"),
    "a start without an execution": (_vanished, "accounted", "Step Functions has no execution of it"),
    "an outcome that differs": (lambda: changed(clean(), "a", state="FAILED"), "accounted", "ended SUCCEEDED at"),
    "an execution without a row": (_rowless, "accounted", "and is SUCCEEDED, has no row"),
    "a returned request that is nowhere": (_returned, "accounted", "r, attempt 1 (sample) is RETURNED, and has no"),
    "a redriven request that is nowhere": (
        lambda: _returned("REDRIVEN"),
        "accounted",
        "r, attempt 2 (sample) is REDRIVEN, and has no",
    ),
    "a run after one that had succeeded": (lambda: _second_run(0.1), "once", "after one that had succeeded"),
    "two runs of an execution at the same time": (_two_runs, "once", "two Glue runs ran at"),
    "an attempt after one that had succeeded": (_again, "once", "a, attempt 1 (sample) succeeded, and attempt 2"),
    "a present holder that has ended": (lambda: _late_holder(302), "freed", "still holds a slot"),
    "a grant before that of a request in front": (_overtaken, "order", "b, attempt 1 (sample) was granted a slot bef"),
    "a grant before a request that is still queued": (_overtaken_in_the_queue, "order", "before z, attempt 1"),
    "a grant before an earlier one of its key": (
        lambda: _keys(row("x", 1, key="a"), key_limit=3),
        "order",
        "a, attempt 1 (sample) was granted a slot before x",
    ),
    "a grant before a higher priority of another key": (
        lambda: _keys(row("x", 1, key="c", priority="high")),
        "order",
        "b, attempt 1 (sample) was granted a slot before x",
    ),
    "more of a key than its limit": (lambda: _keys(key_limit=1), "keys", 'sample, key "a": 2 of 1 at'),
    "more of a key than the limit of all keys, after its own one was removed": (
        lambda: _keys(key_limit=1, acts=[_act(-999, "set-key-limit", key="a", before=5, after=None)]),
        "keys",
        'sample, key "a": 2 of 1 at',
    ),
    "a free slot while a request waited": (_idle, "free", "sample: 11 min"),
    "a free slot after requests that were redriven since": (_idle_after_a_failure, "free", "sample: 19 min"),
    "a free slot behind a request that was cancelled": (
        lambda: _heavy_head(state="CANCELLED", ended=START + 1000),
        "free",
        "sample: 33 min",
    ),
}


@pytest.mark.parametrize(("made", "check", "example"), FAULTS.values(), ids=FAULTS)
def test_a_fault_in_the_records_fails_its_check_and_no_other(
    made: Callable[[], WorkHistory], check: str, example: str
) -> None:
    of = made()
    assert failing(of) == [check]
    assert example in results(of)[check].examples[0]


UNDECIDED: dict[str, tuple[Callable[[], WorkHistory], str, str]] = {
    "an attempt that may be of another caller": (lambda: _again(first="", second=""), "once", "perhaps of another"),
    "a child that was redriven": (lambda: _redriven_child(900), "limit", f"{name('a')} was redriven manually"),
    "a free slot that a lease may have had": (
        lambda: _with_another_grant(_idle(), "late"),
        "free",
        "unless a lease held it",
    ),
    "a free slot that a lease may have had from the begin": (_idle_from_the_begin, "free", "unless a lease held it"),
    "a free slot that a lease may have": (
        lambda: _with_another_grant(history(clean().attempts[:4], row("waits", 100)), "waits"),
        "free",
        "unless a lease held it",
    ),
    "a grant after one that may have been taken back": (
        lambda: _with_another_grant(_overtaken(), "a"),
        "order",
        "unless it had a slot meanwhile",
    ),
    "a request that was perhaps received late": (lambda: _overtaken(intake=False), "order", "unless it was received"),
    "a key's limit that is not known": (
        lambda: _keys(key_limit=1, acts=[_act(-9, "set-key-limit", key="a", before=1, after=3)]),
        "keys",
        'the limit of sample, key "a" is not known',
    ),
    "a key's limit that differs from that of the process which was added": (
        lambda: _keys(key_limit=1, acts=[_act(-9, "add", limit=3, key_limit=None)]),
        "keys",
        'the limit of sample, key "a" is not known',
    ),
    "limits of keys without the audit log": (
        lambda: replace(_keys(), not_read=[UnreadSource("AuditLogGroup", "denied")]),
        "keys",
        'the limit of sample, key "a" is not known',
    ),
    "a request that may have been blocked": (
        lambda: replace(_overtaken(), processes={}),
        "order",
        "unless its weight was above",
    ),
    "a request that may have had its slot in the queue": (
        lambda: _with_another_grant(_overtaken_in_the_queue(), "z"),
        "order",
        "unless it had a slot meanwhile",
    ),
}


@pytest.mark.parametrize(("made", "check", "why"), UNDECIDED.values(), ids=UNDECIDED)
def test_what_the_records_do_not_decide_is_not_shown(made: Callable[[], WorkHistory], check: str, why: str) -> None:
    of = made()
    assert failing(of) == []
    assert results(of)[check].result is Result.NOT_SHOWN
    assert why in results(of)[check].finding


NOT_FAULTS: dict[str, Callable[[], WorkHistory]] = {
    "half a second that whole seconds may have added": lambda: _whole_seconds(0.5),
    "an end that was rounded up": _rounded_up,
    "a start that was rounded down": _rounded_down,
    "a minute by which two clocks may differ": lambda: _two_kinds(50),
    "a child that was redriven while its slot was free": _redriven_child,
    "a request in the slot of a child, before it was redriven": lambda: _redriven_child(350),
    "the limit was lowered while they ran": lambda: _lowered(later=1),
    "admitted before the limit was lowered": lambda: _lowered(at=200),
    "the limit was higher": lambda: _overlap(0.5, acts=[_act(500, "set-limit", before=3, after=2)]),
    "the limit was raised by an operator whose clock is ahead": lambda: _overlap(
        0.5, processes={"sample": process(3)}, acts=[_act(250, "set-limit", before=2, after=3)]
    ),
    "a pause at the time of a change of the limit": lambda: history(
        [attempt("a", 0, None, weight=2)],
        processes={"sample": process(2, paused=True)},
        acts=[_act(0, "set-limit", before=1, after=2), _act(0, "pause")],
    ),
    "an abort that the janitor still settles": lambda: replace(_stranded(), now=START + 400),
    "a holder that the janitor still frees": lambda: _late_holder(250),
    "a redriven child that has just got a slot": lambda: _late_holder(400, since=300),
    "a start that Step Functions does not show yet": lambda: replace(_vanished(), now=START + 60),
    "a returned request with its next attempt": lambda: _returned("CANCELLED"),
    "a next attempt that has ended before the period": lambda: changed(_returned(), "r", ended=START - 58),
    "a returned request that was too late, and redriven": lambda: _returned("REDRIVEN", "CANCELLED"),
    "a request that was returned a moment ago": lambda: replace(_returned(), now=START + 400),
    "a redriven execution whose row has expired": lambda: _rowless(redriven=True),
    "an attempt after a failed one": lambda: _again("REDRIVEN"),
    "an attempt of another caller": lambda: _again(second="m-2"),
    "a request whose name an earlier execution has": lambda: changed(
        clean(), "a", sent=START + 50, state="REJECTED", code="NameTaken", started=None, granted="", ended=START + 51
    ),
    "a run that failed before": lambda: _second_run(0.1, succeeded=False),
    "an execution that succeeded after the next attempt": _redriven_execution,
    "a request that was put back": lambda: _overtaken(put_back=600),
    "a request that was perhaps not received": lambda: _overtaken(later=350),
    "a request that was perhaps blocked": lambda: replace(
        _overtaken(weight=2), acts=[_act(400, "set-limit", before=1, after=2)]
    ),
    "a request of another key that was sent earlier": lambda: _keys(row("x", 1, key="c")),
    "a higher priority of a key that may have been at its limit": lambda: _keys(
        row("x", 1, key="c", priority="high"), key_limits={"c": 1}
    ),
    "a request above the limit of its key": lambda: _keys(row("x", 1, key="a", weight=3), key_limits={"a": 2}),
    "a light request of a key, while it is perhaps the turn of a heavy one": lambda: history(
        [*clean().attempts[:4], attempt("long", 112, None, sent=40), attempt("late", 1000, 5, sent=100, key="a")],
        row("x", 120, key="b", weight=2),
    ),
    "a free slot in a process with limits of keys": lambda: _idle(processes={"sample": process(key_limit=2)}),
    "a process with a limit of keys was added after another one": lambda: _keys(
        key_limit=1, acts=[_act(300, "add", limit=3, key_limit=1)]
    ),
    "the limit of a key was lowered while they ran": lambda: _keys(
        key_limit=1, acts=[_act(520, "set-key-limit", key=None, before=None, after=1)]
    ),
    "a grant that was not recorded": lambda: _overtaken(granted=""),
    "a request that has its slot and is still queued": lambda: _overtaken_in_the_queue(
        processes={"sample": process(holders={name("z"): _holding()})}
    ),
    "a limit that was raised": _raised,
    "a free slot that does not fit the head of the queue": _heavy_head,
    "a free slot that did not fit the head until it was cancelled": lambda: _heavy_head(
        state="CANCELLED", ended=START + 2900
    ),
    "as many holders as a process may have": lambda: _many_holders(500),
    "a rate that was removed": lambda: _idle(acts=[_act(500, "set-rate")]),
    "a paused process": lambda: _idle(acts=[_act(90, "pause"), _act(999, "resume")]),
    "a pause by an operator whose clock is ahead": lambda: _idle(1300, acts=[_act(950, "pause"), _act(1599, "resume")]),
    "a pause that began before the audit lines": lambda: _idle(acts=[_act(999, "resume")]),
    "a pause without an audit line": lambda: history(
        clean().attempts[:4], row("waits", 100), processes={"sample": process(paused=True)}
    ),
    "a lease that a process has": lambda: _idle(
        processes={"sample": process(holders={"l": _holding(state="LEASED", until=int(START) + 9000)})}
    ),
}


@pytest.mark.parametrize("made", NOT_FAULTS.values(), ids=NOT_FAULTS)
def test_what_may_be_right_never_fails(made: Callable[[], WorkHistory]) -> None:
    assert failing(made()) == []


def test_one_holder_less_than_a_process_may_have_leaves_a_slot_free() -> None:
    assert results(_many_holders(500))["free"].result is Result.HOLDS
    assert "sample: 58 min 20 s from" in results(_many_holders(499))["free"].finding


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
    for made, source in ((_vanished, "executions"), (_rowless, "RequestTable"), (_idle, "RequestTable")):
        assert failing(replace(made(), not_read=[UnreadSource(source, "the first ones were read")])) == []


def test_the_weight_of_an_execution_without_a_row_is_not_known() -> None:
    assert not_shown(_rowless()) == ["limit", "once"]


def test_a_limit_that_changed_without_an_audit_line_is_not_known() -> None:
    of = replace(_lowered(), processes={"sample": process(2)})
    assert failing(of) == []
    assert "limit" in not_shown(of)


def test_a_restore_leaves_the_limit_that_the_item_states() -> None:
    restored = replace(clean(), acts=[OperatorAct(START - 3600, "stack restore", "", "arn:operator")])
    assert results(restored)["limit"].result is Result.HOLDS


# ------------------------------------------------------------------------------------------------------------- rates

EXACT = AuditBounds(reservation=-5.0)  # without the difference of two clocks


def _paced(*seconds: float, rate: Rate | None = SIX_A_MINUTE, **fields: object) -> WorkHistory:
    """Requests that started so many seconds after START."""
    attempts = [attempt(f"r{number}", at, 1) for number, at in enumerate(seconds)]
    return history(attempts, **{"processes": {"sample": process(9, rate=rate)}, "bounds": EXACT, **fields})


MANY = [n / 10 for n in range(30)]
RATES: dict[str, tuple[Callable[[], WorkHistory], Result]] = {
    "as allowed": (lambda: _paced(0, 0, 10, 20, 30), Result.HOLDS),
    "one too early": (lambda: _paced(0, 0, 9.9), Result.FAILS),
    "as allowed after a pause": (lambda: _paced(0, 100, 200, 200, 210), Result.HOLDS),
    "one start": (lambda: _paced(0), Result.NOT_SHOWN),
    # After five minutes the janitor would have freed a reservation without an execution.
    "starts that were perhaps granted earlier": (lambda: _paced(*MANY, bounds=AuditBounds()), Result.HOLDS),
    "more than those": (lambda: _paced(*MANY, *MANY, bounds=AuditBounds()), Result.FAILS),
    "sent before the rate was set": (
        lambda: _paced(0, 0, 0, 0, 300, acts=[_act(-10, "set-rate")]),
        Result.NOT_SHOWN,
    ),
    "sent after the rate was set": (
        lambda: _paced(0, 0, 400, 400, 400, acts=[_act(-10, "set-rate")], bounds=EXACT),
        Result.FAILS,
    ),
    "sent a moment after the process was added": (
        lambda: _paced(0, 0, 0, acts=[_act(-1, "add", limit=9)]),
        Result.FAILS,
    ),
    "sent before the process was added again": (
        lambda: _paced(0, 0, 0, 0, acts=[_act(10, "remove"), _act(20, "add", limit=9)]),
        Result.NOT_SHOWN,
    ),
    "without the audit log": (
        lambda: replace(_paced(0, 10, 20), not_read=[UnreadSource("AuditLogGroup", "denied")]),
        Result.NOT_SHOWN,
    ),
}


@pytest.mark.parametrize(("made", "result"), RATES.values(), ids=RATES)
def test_more_starts_than_the_rate_allows_fail(made: Callable[[], WorkHistory], result: Result) -> None:
    assert results(made())["rate"].result is result


def test_a_failure_names_the_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    (example,) = results(_paced(0, 100, 200, 200, 205))["rate"].examples
    assert example.startswith("sample: 3 starts within 5 s from ")
    assert example.endswith("its rate is 6/minute, burst 2")


def test_the_first_audit_of_a_process_shows_its_limit_and_its_rate() -> None:
    """Its requests start some seconds after it was added."""
    added = _act(-1, "add", limit=2)
    paced = _paced(0, 0, 10, processes={"sample": process(2, rate=SIX_A_MINUTE)}, acts=[added], bounds=AuditBounds())
    shown = results(paced)
    assert (shown["limit"].result, shown["rate"].result) == (Result.HOLDS, Result.HOLDS)
    assert shown["rate"].numbers["processes"] == {"sample": {"rate": str(SIX_A_MINUTE), "starts": 3}}
    assert failing(_overlap(0.5, acts=[added])) == ["limit"]


def test_a_request_may_wait_for_the_rate_while_a_slot_is_free() -> None:
    paced = _idle(processes={"sample": process(rate=Rate(60, 3600))})
    assert results(paced)["free"].result is Result.NOT_SHOWN
    assert results(paced)["free"].numbers["waits_known"] == 0


def test_without_a_rate_there_is_no_such_check() -> None:
    assert "rate" not in results(_paced(0, 0, rate=None))
