"""The gate: removes each guard, a row's or a term of an expression, and finds what notices it.

1. The small worlds and the unit tests run without any change. Of each it is noted which mutations would have changed an
   effect or an answer of the simulated DynamoDB.
2. Each mutation is made, and those worlds are searched until a guarantee breaks. If none does, those tests and the
   proof are tried. For a row, what it names.

Each step is a task in a fork of a pytest session that has collected the tests.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from tests.guards import sent
from tests.guards.children import each
from tests.guards.edits import Gone
from tests.guards.redundant import EITHER, reason_of
from tests.guards.rows import Row, Schedules, World
from tests.guards.sent import Weaker, Write, mutate, watch
from tests.proof.slots.claims import broken_claim
from tests.simulation import frozen
from tests.simulation.exploring import explore
from tests.simulation.small_worlds import SMALL, Effort
from tests.simulation.world_runs import first_broken

SECONDS = 900.0  # of a task, on a busy machine; a longer one hangs
MOST_STATES = 300_000  # of the world of a row
MOST_OF_MUTATION = 10_000  # of a world that may notice a mutation
FIRST_WORLDS, MOST_TESTS = 3, 600  # of those that may notice a mutation, the quickest
WORLDS = [name for name, small in SMALL.items() if small.effort is Effort.QUICK]
WORLDS += ["1 request, paused and resumed"]
# The tests that may notice a mutation.
UNIT = (
    *(f"tests/unit/{folder}" for folder in ("slots", "token", "retry", "chatbot")),
    "tests/command/test_repair_command.py",
)
# A failure that shows that the changed code is not valid.
_INVALID = re.compile(r"(NameError|UnboundLocalError|ImportError|SyntaxError|AttributeError: module)\b")

Status = Literal["noticed", "not noticed", "redundant", "gone", "invalid", "failed"]
GOOD = ("noticed", "redundant")


class Verdict(NamedTuple):
    """What has happened without a guard. `by`: the world, claim or test that has noticed it, and how."""

    name: str
    status: Status
    by: str = ""
    detail: str = ""


class Seen(NamedTuple):
    """What a world or some tests have sent: of each the mutations that would have changed something, and the time."""

    mutations: dict[str, dict[Weaker, bool]]
    seconds: dict[str, float]
    senders: dict[Write, set[str]]


@dataclass
class Mutation:
    """A weaker form of the writes of a sender, and the worlds and tests in which it would change something."""

    sender: str
    name: str
    writes: set[Write] = field(default_factory=set)
    worlds: dict[str, float] = field(default_factory=dict)
    tests: dict[str, float] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The changes that are made together."""
        return self.name.split(" and ")

    def __str__(self) -> str:
        return f"{self.sender}: {self.name}"


# Without any change -------------------------------------------------------------------------------------------------


def observe_world(name: str) -> Seen:
    """Search a small world."""
    small, seen, began = SMALL[name], dict[Weaker, bool](), time.process_time()
    with pytest.MonkeyPatch.context() as patch:
        watch(patch, seen)
        assert not explore(small.make(), small.faults).violation, f"{name} breaks without any change"
    return Seen({name: seen}, {name: time.process_time() - began}, sent.senders)


def observe_tests(items: Iterable[pytest.Item]) -> Seen:
    """Run tests."""
    observed = Seen({"": {}}, {"": 0.0}, sent.senders)
    for item in items:
        seen, began = dict[Weaker, bool](), time.process_time()
        with pytest.MonkeyPatch.context() as patch:
            watch(patch, seen)
            assert not (message := failure(item)), f"{item.nodeid} fails without any change: {message}"
        observed.mutations[""].update(dict.fromkeys(seen, False))
        if differing := {weaker: True for weaker, differs in seen.items() if differs}:
            observed.mutations[item.nodeid] = differing
            observed.seconds[item.nodeid] = time.process_time() - began
    return observed


def mutations(observed: Iterable[Seen]) -> list[Mutation]:
    """All mutations of what was sent, by sender and name."""
    found: dict[tuple[str, str], Mutation] = {}
    for seen in observed:
        for name, of_name in seen.mutations.items():
            for (write, change), differs in of_name.items():
                if sender := sent.sender(write):  # else a test has sent it
                    made = found.setdefault((sender, change), Mutation(sender, change))
                    made.writes.add(write)
                    if differs:
                        (made.worlds if name in SMALL else made.tests)[name] = seen.seconds[name]
    for sender, names in EITHER.items():
        alone = [found[sender, name] for name in names if (sender, name) in found]
        if alone:  # what notices that all are gone may not notice one
            both = found[sender, " and ".join(names)] = Mutation(sender, " and ".join(names))
            for each_alone in found.values():
                if each_alone.sender == sender:
                    both.writes |= each_alone.writes
                    both.worlds |= each_alone.worlds
                    both.tests |= each_alone.tests
    return [found[key] for key in sorted(found)]


# Without a guard ----------------------------------------------------------------------------------------------------


def try_mutation(mutation: Mutation, items: Mapping[str, pytest.Item]) -> Verdict:
    """Make a mutation, and try what may notice it."""
    with pytest.MonkeyPatch.context() as patch:
        mutate(patch, mutation.writes, *mutation.names)
        by, detail = next(filter(lambda noticed: noticed[1], _noticed_by(mutation, items)), ("", ""))
    if reason := reason_of(mutation.sender, mutation.name):
        if by:
            return Verdict(str(mutation), "failed", by, f"{detail}: it is not redundant, so remove it from the list")
        return Verdict(str(mutation), "redundant", "", reason)
    return Verdict(str(mutation), "noticed" if by else "not noticed", by, detail)


def _noticed_by(mutation: Mutation, items: Mapping[str, pytest.Item]) -> Iterator[tuple[str, str]]:
    """What may notice a mutation, and how it does; empty if it does not. The quickest first."""
    worlds = sorted(mutation.worlds, key=mutation.worlds.__getitem__)
    for world in worlds[:FIRST_WORLDS]:
        yield world, _broken_in(World(SMALL[world].make, SMALL[world].faults, ""), MOST_OF_MUTATION)
    for test in sorted(mutation.tests, key=mutation.tests.__getitem__)[:MOST_TESTS]:
        yield test, failure(items[test])
    claim = broken_claim(lambda write: sent.sender(write) == mutation.sender, frozenset(mutation.names))
    yield claim, claim and "a counterexample"
    for world in worlds[FIRST_WORLDS:]:
        yield world, _broken_in(World(SMALL[world].make, SMALL[world].faults, ""), MOST_OF_MUTATION)


def try_row(row: Row, items: Mapping[str, pytest.Item]) -> Verdict:
    """Remove the guard of a row, and try what must notice it."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            row.remove(patch)
        except Gone as error:
            return Verdict(row.name, "gone", "", str(error))
        match row.noticed:
            case World() as world:
                broken = _broken_in(world)
                return _verdict(row, broken, broken.partition(":")[0] in world.broken.split())
            case Schedules(draw, seeds, wanted):
                broken, seed = first_broken(draw, seeds)
                return _verdict(row, f"{broken} with seed {seed}", broken in wanted.split())
            case str() as test:
                message = next(filter(None, (failure(items[name]) for name in matching(test, items))), "")
                if _INVALID.search(message):
                    return Verdict(row.name, "invalid", test, message)
                return _verdict(row, message, bool(message))


def _verdict(row: Row, detail: str, noticed: bool) -> Verdict:
    by = row.noticed if isinstance(row.noticed, str) else "world" if isinstance(row.noticed, World) else "schedules"
    return Verdict(row.name, "noticed" if noticed else "not noticed", by, detail)


def _broken_in(world: World, most_states: int = MOST_STATES) -> str:
    """The guarantee that breaks first in a small world; empty if none does."""
    frozen.forget()
    try:
        violation = explore(world.make(), world.faults, most_states).violation
    except Exception:  # there are too many states, or the world itself fails
        return ""
    return str(violation or "")


def matching(test: str, items: Iterable[str]) -> list[str]:
    """The ids of a test: of each of its parameters if it is named without one."""
    return [name for name in items if name == test or name.startswith(f"{test}[")]


def failure(item: pytest.Item) -> str:
    """Run a test: the last line of its failure, or an empty text."""
    if hasattr(item, "_initrequest"):
        item._initrequest()  # it may have run before
    reports = runtestprotocol(item, nextitem=None, log=False)
    failed = [report for report in reports if report.failed]
    if not failed:
        return ""
    crash = getattr(failed[0].longrepr, "reprcrash", None)
    return " ".join((crash.message if crash else str(failed[0].longrepr)).split())[:200]


# All of them --------------------------------------------------------------------------------------------------------

Progress = Callable[[str, int], Callable[[], None]]  # a name and a number of tasks; the result is called after each


class Broken(Exception):
    """Something fails without any change."""


def verdicts(
    rows: Sequence[Row],
    is_wanted: Callable[[str], bool] | None,
    items: Mapping[str, pytest.Item],
    jobs: int,
    progress: Progress,
) -> Iterator[Verdict]:
    """The verdicts of rows and of mutations, as they come.

    Args:
        is_wanted: whether a mutation of this name is tried; None for no mutation at all.

    Raises:
        Broken: see there.
    """
    tests = [name for row in rows if isinstance(row.noticed, str) for name in matching(row.noticed, items)]
    tests += [name for name in items if is_wanted and name.startswith(UNIT)]
    of_file: dict[str, list[pytest.Item]] = {}
    for name in dict.fromkeys(tests):
        of_file.setdefault(name.partition("::")[0], []).append(items[name])
    clean: dict[str, Callable[[], Seen]] = {file: partial(observe_tests, of_file[file]) for file in of_file}
    if is_wanted:
        clean |= {name: partial(observe_world, name) for name in WORLDS}
    observed = dict(_each("without any change", clean, jobs, progress))
    if broken := [f"{name}: {seen}" for name, seen in observed.items() if isinstance(seen, str)]:
        raise Broken("\n".join(broken))
    for seen in observed.values():
        for write, senders in seen.senders.items():
            sent.senders[write] |= senders
    found = [each for each in mutations(observed.values()) if is_wanted and is_wanted(str(each))]
    tried: dict[str, Callable[[], Verdict]] = {row.name: partial(try_row, row, items) for row in rows}
    tried |= {str(mutation): partial(try_mutation, mutation, items) for mutation in found}
    for name, verdict in _each("without a guard", tried, jobs, progress):
        yield Verdict(name, "failed", "", verdict) if isinstance(verdict, str) else verdict


def _each[T](
    title: str, tasks: dict[str, Callable[[], T]], jobs: int, progress: Progress
) -> Iterator[tuple[str, T | str]]:
    advance = progress(title, len(tasks))
    for result in each(tasks, jobs, SECONDS):
        yield result
        advance()
