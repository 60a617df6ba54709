"""What the janitor may find at worst, in virtual time: Glue is silent, very many holders are dead, very much is old.

In each scene another process has nothing to do with the trouble. Its wake is lost and one of its workflows is aborted,
without a status event, once the trouble has begun; what becomes of those is what the trouble costs everybody else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slotkeeper.slots.request import execution_name
from tests.simulation.janitor_time import EPOCH, PERIOD, QUOTAS, Account, Function

OTHER, HANDLE, ABORTED = "zz-other", "handle of another process", "zz-other-aborted"
LOST_AT = 605.0  # just after a run has looked
DAY = 86400


@dataclass(frozen=True)
class Outcome:
    """In seconds, from when it could have been done; None if it was not.

    Attributes:
        woken, kept, freed: the other process's request, the request of its aborted workflow, its dead holder's slot.
        all_freed, all_kept: the last of all, since the trouble began.
        most_kept: how often the request was kept that was kept most often.
        longest: the longest run.
        at_once: the most runs at once.
        ended: how the runs ended, and how often.
    """

    woken: float | None
    kept: float | None
    freed: float | None
    all_freed: float | None
    all_kept: float | None
    most_kept: int
    longest: float
    at_once: int
    ended: dict[str, int]


@dataclass(frozen=True)
class Trouble:
    """A scene: `make` puts it into an account. `until`: for how long it is watched, unless all is done before."""

    name: str
    make: Callable[[Account], None]
    until: float = 3600


def silent_glue(account: Account) -> None:
    account.unanswered["get_job_runs"] = 1800
    account.process("p", dead=10)


def one_process(account: Account, dead: int = 10_000) -> None:
    account.process("p", dead=dead)


def many_processes(account: Account, processes: int = 1000, dead: int = 10) -> None:
    for number in range(processes):
        account.process(f"p{number:04}", dead=dead)


def old_registrations(account: Account, processes: int = 16_000) -> None:
    for number in range(processes):
        account.process(f"p{number:05}", waiting="of a message that has long been consumed")


def a_fortnights_failures(account: Account, failures: int = 100_000) -> None:
    """None of them settled."""
    for number in range(failures):
        stopped = (-13 + 12 * number / failures) * DAY
        account.close(f"p-{number:032}", stopped - 60, stopped)


def a_long_search(account: Account) -> None:
    """A holder of eight hours, of a job that starts twenty runs a second."""
    account.process("p", dead=1, job="busy")
    holder = account.items["p"]["holders"]["M"][execution_name("p", "0", 1)]
    holder["M"]["since"]["N"] = str(EPOCH - 8 * 3600)
    account.runs["busy"] = (20, [])


TROUBLES = [
    Trouble("Glue does not answer for half an hour, 10 dead holders", silent_glue),
    Trouble("one process, 10,000 dead holders", one_process),
    Trouble("1,000 processes, 10 dead holders each", many_processes),
    Trouble("16,000 idle processes, old registrations", old_registrations, 1200),
    Trouble("100,000 failures of a fortnight, unsettled", a_fortnights_failures, 1200),
    Trouble("one dead holder, 576,000 runs of its job since", a_long_search),
]


def play(
    make: Callable[[Account], None],
    until: float = 3600,
    function: Callable[[Account], Function] = Function,
    enough: Callable[[Account], bool] = lambda _: False,
) -> Outcome:
    """The scene, with a run each period, until all is done or a time has come."""
    account = Account(QUOTAS)
    make(account)
    account.process(OTHER, limit=2, dead=1, job="other")
    held, executions = account.dead(), set(account.executions) | {ABORTED}

    def lose() -> None:
        account.wait(OTHER, HANDLE)
        account.close(ABORTED, 0, LOST_AT)

    account.at(LOST_AT, lose)
    janitor = function(account)
    janitor.every(PERIOD, until, first=PERIOD / 2)

    def done() -> bool:
        """Asked after each step: the sets are compared only once they can be equal."""
        counted = len(account.freed) >= len(held) and len(account.kept) >= len(executions)
        return counted and held <= account.freed.keys() and executions <= account.kept.keys()

    account.run(until, lambda: enough(account) or done())
    freed, kept = account.freed, {name: times[0] for name, times in account.kept.items()}
    woken = account.woken.get(HANDLE)
    return Outcome(
        None if woken is None else woken - LOST_AT,
        kept[ABORTED] - LOST_AT if ABORTED in kept else None,
        freed.get(execution_name(OTHER, "0", 1)),
        max(freed.values()) if held <= freed.keys() else None,
        max(kept.values()) if executions <= kept.keys() else None,
        max((len(times) for times in account.kept.values()), default=0),
        max(janitor.seconds, default=0.0),
        janitor.most_at_once,
        dict(janitor.ended),
    )
