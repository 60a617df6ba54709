"""Checks Glue in a run of the janitor: one search per job for all its dead holders, the jobs in turns.

A search lists a job's runs from the newest back to the oldest reservation, 200 per page. For a job with many runs and a
holder that is a day old, these are thousands of pages. Therefore:

- Jobs take turns of a few pages.
- A holder is judged as soon as the search has passed its reservation.
- The next janitor run continues a search that this one could not finish.
- After an outage of Glue the run makes no further Glue call. If Glue refuses one job, only its holders are skipped.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from slotkeeper.slots.dead_holders import CheckOutcome, DeadHolders, Held
from slotkeeper.slots.glue import CLOCK_DIFFERENCE_SECONDS, GlueRun, JobRunSearch, NoSuchJob
from slotkeeper.slots.run_report import RunReport, is_outage

_PAGES_A_TURN = 20
_HOLDERS_A_TURN = 100


@dataclass
class _Task:
    """One search, and the holders that are judged by it."""

    job: str
    search: JobRunSearch
    waiting: dict[str, Held]


@dataclass
class GlueChecks:
    """Checks holders, and keeps unfinished searches for the next run.

    Args:
        shuffle: puts the jobs into random order, so that no job is always the last.
        settle: settles the request of a holder whose caller waits, because only the holder is sure to have the token;
            False if that is not done yet, so that the slot is kept.
    """

    dead: DeadHolders
    shuffle: Callable[[list[str]], None]
    settle: Callable[[Held, RunReport, GlueRun | None], bool]
    _unfinished: dict[str, _Task] = field(default_factory=dict, init=False)

    def check(
        self, holders: Iterable[Held], all_holders: set[str] | None, report: RunReport, until: float
    ) -> list[Held]:
        """Check these holders until `until` (epoch seconds); return those whose slots were freed.

        Args:
            all_holders: the names of all holders in the table, as read at the start of this run. None: some could not
                be read, so that no run is known to be without a slot.
        """
        started_at = self.dead.clock()
        freed: list[Held] = []
        turns = deque(self._tasks(list(holders), started_at))
        while turns:
            task = turns.popleft()
            if self.dead.clock() >= until:
                # setdefault: a job's oldest search comes first, and is the one to continue.
                for left in (task, *turns):
                    self._unfinished.setdefault(left.job, left)
                report.cut_short("The run's time has ended; the next run continues", jobs=len(self._unfinished))
                break
            try:
                self._turn(task, freed, report, until)
            except Exception as error:
                report.could_not_check(
                    "Could not search the Glue runs of a job; its holders keep their slots",
                    error,
                    task.waiting,
                    task.job,
                )
                if is_outage(error):
                    break
                continue
            if task.waiting:
                turns.append(task)
            elif all_holders is not None:
                self._report_unheld(task, all_holders, started_at, report)
        return freed

    def _tasks(self, holders: list[Held], started_at: float) -> list[_Task]:
        by_job: dict[str, dict[str, Held]] = defaultdict(dict)
        for held in holders:
            by_job[held.target][held.name] = held
        unfinished, self._unfinished = self._unfinished, {}
        jobs = list(by_job)
        self.shuffle(jobs)
        tasks = []
        for job in jobs:
            fresh = by_job[job]
            if job in unfinished:
                task = unfinished[job]
                task.waiting = {name: held for name, held in fresh.items() if _same(held, task.waiting.get(name))}
                fresh = {name: held for name, held in fresh.items() if name not in task.waiting}
                tasks += [task] if task.waiting else []
            if fresh:
                tasks.append(_Task(job, self.dead.glue.search_runs(job, started_at, fresh), fresh))
        return tasks

    def _turn(self, task: _Task, freed: list[Held], report: RunReport, until: float) -> None:
        """Read a few pages or judge a few holders, so that a job with many dead holders does not delay the others."""
        concluded = 0
        for _ in range(_PAGES_A_TURN):
            for held in list(task.waiting.values()):
                if not task.search.covers(held.holder.since):
                    continue
                if concluded == _HOLDERS_A_TURN or self.dead.clock() >= until:
                    return
                concluded += 1
                del task.waiting[held.name]
                self._conclude(held, task.search, freed, report)
            if not task.waiting or self.dead.clock() >= until:
                return
            try:
                task.search.read_page()
            except NoSuchJob:
                report.note(
                    "GlueJobsMissing", "The Glue job of a holder does not exist; it has no live run", job=task.job
                )

    def _conclude(self, held: Held, search: JobRunSearch, freed: list[Held], report: RunReport) -> None:
        try:
            settle = partial(self.settle, held, report, search.newest.get(held.name))
            if self.dead.conclude(held, search, report, settle) is CheckOutcome.FREED:
                freed.append(held)
        except Exception as error:
            if is_outage(error):
                raise
            report.could_not_check("Could not check a holder; it keeps its slot", error, [held.name], held.target)

    def _report_unheld(self, task: _Task, all_holders: set[str], started_at: float, report: RunReport) -> None:
        """Report live runs whose execution holds no slot: after a restore of the table, or after a repeated call.

        The runs are not stopped: their work may be needed, and their request is not known for certain. A run that
        started after the table was read is not reported, because its slot may have been reserved since.
        """
        for execution, runs in task.search.alive.items():
            old = [
                run
                for run, started in runs.items()
                if started is not None and started < started_at - CLOCK_DIFFERENCE_SECONDS
            ]
            if old and execution not in all_holders:
                report.note(
                    "GlueRunsUnheld", "A live Glue run's execution holds no slot", runs=old, execution=execution
                )


def _same(now: Held, before: Held | None) -> bool:
    """Whether the holder is unchanged since a search for it began, so that the search still counts as a check."""
    return before is not None and (now.holder.raw, now.closed_at) == (before.holder.raw, before.closed_at)
