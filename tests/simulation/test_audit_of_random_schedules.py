"""`slotkeeper audit` condemns no history that the simulation accepts; and a history with a violation never holds.

`make simulate` runs a million of these schedules, as the world "audit".
"""

from __future__ import annotations

from collections import Counter
from random import Random

from slotkeeper_cli.audit.check_result import Result
from tests.simulation import scheduling
from tests.simulation.audited_world import random_world

SEEDS = range(40)


def test_random_schedules_are_not_condemned_and_what_breaks_a_guarantee_does_not_hold() -> None:
    """Each schedule is audited twice while it runs, at its end, and long after it (AuditedWorld)."""
    seen = Counter[tuple[str, str, Result]]()
    for seed in SEEDS:
        random = Random(seed)
        world = random_world(random)
        scheduling.run(world, random)
        seen.update(world.results)
    of_schedules = {check: number for (what, check, result), number in seen.items() if not what and result == "holds"}
    assert of_schedules.keys() == {"limit", "accounted", "once", "freed", "order", "free", "rate", "keys"}
    assert {what for what, _, result in seen if what and result is Result.FAILS} == {
        "more at work than the limit",
        "a second run of a success",
        "an execution without its row",
        "a row without its execution",
        "a returned request that vanished",
        "more of a key than its limit",
        "a slot free for hours while a request waits",
        "a request passed for hours",
    }
