"""Keys have turns: none waits for another one that has more requests, and what is read depends on the keys alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.slots import plan as plan_module
from slotkeeper.slots.plan import MAX_STARTS, Leave, Plan, plan, plan_queue
from slotkeeper.slots.process import Process
from slotkeeper.slots.queued import QUEUE_END, QUEUE_START, Queued, QueuePart, QueueParts, place_of
from slotkeeper.slots.rate import Rate
from tests.profiles import share
from tests.unit.slots.test_plan import AGE, NOW, QUEUES, ROUNDS, a_process, holder, keyed, of_keys, processes

Line = tuple[str, str]  # rank of a priority, key
LINES: dict[str, list[Line]] = {
    "three keys": [("1", "a"), ("1", "b"), ("1", "")],
    "two priorities": [("0", "a"), ("0", ""), ("1", "a"), ("1", "")],
}
# The line of each request, the key of each holder, and the last turns. Then pairs of lines: since the first one's last
# start, or since it could start, the second one has started.
State = tuple[tuple[Line, ...], tuple[str, ...], tuple[tuple[str, str], ...], frozenset[tuple[Line, Line]]]


def less[T](of: tuple[T, ...], one: T) -> tuple[T, ...]:
    at = of.index(one)
    return of[:at] + of[at + 1 :]


@pytest.mark.parametrize("lines", LINES.values(), ids=LINES)
@pytest.mark.parametrize("of_a", [{}, {"a": 0}, {"a": 1}, {"a": 2}], ids=str)
@pytest.mark.parametrize("key_limit", [None, 0, 1])
def test_between_two_starts_of_a_key_that_can_start_each_other_key_starts_once_at_most(
    lines: list[Line], key_limit: int | None, of_a: dict[str, int]
) -> None:
    """In each state that is reached by arrivals, starts and releases, and before the first start of a key too.

    So of n starts in a row, one of k keys of a priority has at least n / k, rounded down.
    """
    process = replace(a_process(2), key_limit=key_limit, key_limits=of_a)

    def can_start(queued: tuple[Line, ...], held: tuple[str, ...], line: Line) -> bool:
        """Whether a line has a request that only the process's limit may keep from starting."""
        limit = process.limit_of(line[1])
        return line in queued and (limit is None or held.count(line[1]) < limit)

    @cache
    def planned(queued: tuple[Line, ...], held: tuple[str, ...], after: tuple[tuple[str, str], ...]) -> Plan:
        holders = {f"h{at}": holder(key=key) for at, key in enumerate(held)}
        now = replace(process, holders=holders, slots_in_use=len(held), after_keys=dict(after))
        queue = [Queued(str(at), place_of(int(rank), at, "", key)) for at, (rank, key) in enumerate(queued)]
        return plan(now, sorted(queue, key=lambda each: each.place), NOW, age=AGE, most=1)

    def steps(state: State) -> Iterator[State]:
        queued, held, after, served = state
        yield from ((tuple(sorted([*queued, line])), held, after, served) for line in lines if queued.count(line) < 2)
        yield from ((queued, less(held, key), after, served) for key in {*held})
        for start in (found := planned(queued, held, after)).starts:
            line = queued[int(start.execution)]
            again = {(each, line) for each in queued if each[0] == line[0] and can_start(queued, held, each)}
            assert (line, line) in again
            assert not again & served
            then = tuple(sorted(found.after_keys.items()))
            served = frozenset(pair for pair in served | again if pair[0] != line)
            yield less(queued, line), tuple(sorted([*held, line[1]])), then, served

    seen, left = set[State](), list[State]([((), (), (), frozenset())])
    while left:
        for queued, held, after, served in steps(left.pop()):
            state = queued, held, after, frozenset(pair for pair in served if can_start(queued, held, pair[0]))
            left += [state] * (state not in seen)
            seen.add(state)
    assert len(seen) > 20


class Reader:
    """A queue that is read in pages, without what is above the process's limit. `sizes`: of the pages, in turns."""

    def __init__(self, process: Process, queue: list[Queued], sizes: Sequence[int] = (1_000_000,)) -> None:
        self.queue, self.limit, self.sizes, self.reads = queue, process.slot_limit, sizes, list[int]()

    def __call__(self, after: str, most: int | None) -> QueuePart:
        behind = [each for each in self.queue if each.place > after]
        page = behind[: min(most or 1_000_000, self.sizes[len(self.reads) % len(self.sizes)])]
        self.reads.append(len(page))
        fitting = [each for each in page if each.weight is None or each.weight <= self.limit]
        return QueuePart(fitting, after, page[-1].place if len(page) < len(behind) else QUEUE_END)

    def plan(self, process: Process, reads: int, most: int = MAX_STARTS) -> tuple[Plan, set[Leave], int]:
        """Plan as dispatches do, in rounds of so many reads, until something starts or all is known.

        Returns the last plan, what leaves in any round, and the number of rounds.
        """
        planned, leaves, rounds = None, set[Leave](), 0
        due = QueuePart([each for each in self.queue if each.skips or each.start_before], "", "")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plan_module, "MAX_READS", reads)
            while planned is None or (planned.unread and not planned.starts):
                passed, rounds = planned and planned.unread, rounds + 1
                _, parts = plan_queue(self, process, NOW, age=AGE, most=most, passed=passed)
                parts.add(due)
                planned = plan(process, parts.requests, NOW, age=AGE, most=most, parts=parts)
                leaves |= {*planned.leaves}
                assert rounds <= 9 + 3 * len(self.queue)
        return planned, leaves, rounds


@share(3)
@given(processes(), QUEUES, ROUNDS, st.lists(st.integers(1, 3), min_size=1, max_size=3), st.sampled_from([1, 2, 100]))
def test_a_queue_that_is_read_in_parts_is_planned_as_the_whole_one(
    process: Process, queue: list[Queued], most: int, sizes: list[int], reads: int
) -> None:
    whole = plan(process, queue, NOW, age=AGE, most=most)
    planned, leaves, _ = Reader(process, queue, sizes).plan(process, reads, most)

    assert planned.starts == whole.starts[: len(planned.starts)]
    assert leaves <= {*whole.leaves}
    if planned.unread is None:
        assert (planned.starts, planned.next_start) == (whole.starts, whole.next_start)
        assert planned.after_keys == whole.after_keys
        if len(planned.starts) < most:  # otherwise the next round decides about the rest
            assert leaves == {*whole.leaves}
            assert whole.look_again is None or (planned.look_again or math.inf) <= whole.look_again


FULL = [f"k{number:02}" for number in range(30)]


@pytest.mark.parametrize("after", ["", "k14x", "k15", "z"])
@pytest.mark.parametrize("each", [1, 200])
@pytest.mark.parametrize("key_limit", [0, 1])
@pytest.mark.parametrize("reads", [1, 7, 100])
def test_behind_full_keys_the_reads_depend_on_their_number_and_not_on_their_requests(
    reads: int, key_limit: int, each: int, after: str
) -> None:
    held = {f"h{key}": holder(key=key) for key in FULL}
    process = replace(a_process(99), holders=held, slots_in_use=30, key_limit=key_limit)
    process = replace(process, key_limits={"k14x": 1}, after_keys={"1": after})
    queue = [Queued(f"{key} {at}", place_of(1, at, "", key)) for key in [*FULL, "k14x"] for at in range(each)]
    read = Reader(process, sorted(queue, key=lambda each: each.place))

    planned, _, rounds = read.plan(process, reads)

    assert [one.execution for one in planned.starts] == ["k14x 0"]
    assert rounds <= 3 + len(FULL) // reads
    assert len(read.reads) <= len(FULL) + 4
    assert max(read.reads) <= MAX_STARTS + 1


def test_a_rate_names_its_time_although_the_request_that_is_next_was_not_read() -> None:
    process = of_keys(3, "x", rate=Rate(1, 60), next_start=NOW * 1000 + 5000, after_keys={"1": "a"})
    heavy = [Queued(f"a{at}", place_of(1, at, "", "a"), weight=3) for at in range(MAX_STARTS + 1)]
    read = Reader(process, [*heavy, *keyed("b1")])
    planned, _ = plan_queue(read, process, NOW, age=AGE)
    assert (planned.look_again, read.reads) == (NOW + 5, [MAX_STARTS + 1])


HIGH, LOW = QueuePart((), QUEUE_START, "0~"), QueuePart([Queued("low", place_of(2, 0, ""))], "2#", QUEUE_END)
HEAVY, NEXT = keyed("a1:9 b1")


@pytest.mark.parametrize(
    ("known", "unread"),
    [
        ([HIGH, LOW], (QUEUE_START, "0~")),
        ([HIGH], (QUEUE_START, "0~")),
        ([QueuePart([HEAVY], QUEUE_START, HEAVY.place), QueuePart([NEXT], "1#/b", QUEUE_END)], ("1~", HEAVY.place)),
    ],
    ids=["a higher priority", "lower ones", "behind one of the first key that is blocked"],
)
def test_nothing_starts_while_what_comes_before_it_may_be_unread(
    known: list[QueuePart], unread: tuple[str, str]
) -> None:
    parts = QueueParts(known)
    planned = plan(of_keys(8), parts.requests, NOW, age=AGE, parts=parts)
    assert (planned.starts, planned.unread) == ((), unread)
