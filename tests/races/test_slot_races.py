"""Processes of threads race for slots on an engine whose conditional writes are atomic. Every write is judged.

Starters, workflows and janitors do every step with every execution at once, and some never hear what came of it. See
conftest for how to let them do so for longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from dev.emulator.environment import ROOT
from tests.races import slot_report
from tests.races.slot_races import Crowd, Outcome, Race

SHORT = 2.0  # seconds
LEAST = 20  # steps of each thread of a short one: a busy machine takes longer, and judges no less
ROUNDS = 25  # on a busy machine fewer of them are close
BETWEEN_WORDS = 5.0  # seconds

RaceIt = Callable[[str, Race], Outcome]


@pytest.fixture(scope="module")
def race_it(request: pytest.FixtureRequest, crowd: Crowd) -> Iterator[RaceIt]:
    """Runs a race; a long one tells how it goes, and is in the report."""
    seconds = request.config.getoption("seconds", None)
    outcomes: dict[str, Outcome] = {}

    def run(name: str, race: Race) -> Outcome:
        if not seconds:
            return crowd.race(race, SHORT, LEAST)
        plugins = request.config.pluginmanager
        terminal, capture = plugins.getplugin("terminalreporter"), plugins.getplugin("capturemanager")
        assert terminal is not None, "long races are run without xdist, to be watched and to have the machine"
        printed = time.monotonic()

        def tell(text: str) -> None:
            with capture.global_and_fixture_disabled():
                terminal.ensure_newline()
                terminal.write_line(text)

        def watch(text: str) -> None:
            nonlocal printed
            if time.monotonic() - printed >= BETWEEN_WORDS:
                printed = time.monotonic()
                tell(f"  {name} {text}")

        outcomes[name] = crowd.race(race, seconds, watch=watch)
        tell(slot_report.line(name, outcomes[name]))
        return outcomes[name]

    yield run
    if outcomes:
        slot_report.write(outcomes, ROOT / "build" / "races")


def none_is_lost(race_it: RaceIt, name: str, race: Race, is_close: Callable[[Outcome], bool]) -> None:
    """One race is enough, if it was close; it takes another only by chance."""
    for _ in range(ROUNDS):
        outcome = race_it(name, race)
        assert not outcome.judge.faults, outcome.judge.tell()
        figures = outcome.figures
        if is_close(outcome) and min(figures.grants, figures.refusals, figures.snapshots, figures.lost_answers) > 0:
            return
    pytest.fail(f"no race was close, which judges nothing; the last was {outcome.figures}")


@pytest.mark.parametrize("limit", [1, 10, 200])
def test_s1_s2_at_every_write_holders_are_counted_and_never_more_than_the_limit(race_it: RaceIt, limit: int) -> None:
    none_is_lost(race_it, f"limit {limit}", Race(limit), lambda outcome: outcome.figures.most_holders == limit)


def test_f6_s1_nobody_is_admitted_above_a_limit_that_moves_nor_in_a_pause(race_it: RaceIt) -> None:
    race = Race(10, ("limit", "pause"))
    none_is_lost(
        race_it, "moving limit", race, lambda outcome: any(held > limit for held, limit in outcome.judge.curve)
    )


def test_s1_a_count_that_is_wrong_admits_nobody_where_the_holders_or_the_count_say_full(race_it: RaceIt) -> None:
    race = Race(4, ("count",))
    none_is_lost(race_it, "wrong count", race, lambda outcome: outcome.figures.most_holders == race.limit)
