"""The janitor under load, in virtual time: Glue does not answer, very many holders are dead, or much is unsettled.

In each scene another process, without this load, loses a wake, and one of its workflows is aborted without a status
event. The times at which these are handled show how the load delays other processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slotkeeper.slots.request import execution_name
from tests.simulation.janitor_time import EPOCH, PERIOD, QUOTAS, Account, Function

OTHER, HANDLE, ABORTED = "zz-other", "handle of another process", "zz-other-aborted"
LOST_AT = 605.0  # seconds: just after a janitor run
DAY = 86400


@dataclass(frozen=True)
class Outcome:
    """The result of a scene. Times are in seconds, None if it did not happen.

    Attributes:
        woken, kept: of the other process's request, and its aborted workflow's, since LOST_AT.
        freed: of the other process's dead holder, since the start.
        all_freed, all_kept: of the last holder and request, since the start.
        most_kept: how often a request was kept, at most.
        longest: the longest run.
        concurrent: the most concurrent runs.
        ended: how the runs ended -> how often.
    """

    woken: float | None
    kept: float | None
    freed: float | None
    all_freed: float | None
    all_kept: float | None
    most_kept: int
    longest: float
    concurrent: int
    ended: dict[str, int]


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
        account.process(f"p{number:05}", waiting="handle of a deleted message")


def unsettled_failures(account: Account, failures: int = 100_000) -> None:
    """Unsettled failures of two weeks."""
    for number in range(failures):
        stopped = (-13 + 12 * number / failures) * DAY
        account.close(f"p-{number:032}", stopped - 60, stopped)


def a_long_search(account: Account) -> None:
    """A dead holder since eight hours ago, of a job with twenty runs a second."""
    account.process("p", dead=1, job="busy")
    holder = account.items["p"]["holders"]["M"][execution_name("p", "0", 1)]
    holder["M"]["since"]["N"] = str(EPOCH - 8 * 3600)
    account.runs["busy"] = (20, [])


def play(
    make: Callable[[Account], None],
    until: float = 3600,
    function: Callable[[Account], Function] = Function,
    enough: Callable[[Account], bool] = lambda _: False,
) -> Outcome:
    """Play a scene with a janitor run each period, until all is done, `enough` holds, or `until` is reached."""
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
        """Called after each step, so it compares the sets only when they can be equal."""
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
        janitor.most_concurrent,
        dict(janitor.ended),
    )
