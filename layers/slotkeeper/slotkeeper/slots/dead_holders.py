"""Decides which holders are dead, checks their work and frees their slots. Age alone never frees a slot.

- RESERVED: dead if its execution is closed. One without an execution is started again by a dispatch.
- RUNNING a Glue job: dead if the execution is closed and two checks, a gap apart and both after the close, find no live
  Glue run of it. A Glue run outlives an aborted execution, and a StartJobRun that was in flight at the first check may
  be visible only at the second.
- RUNNING a state machine: dead if the execution is closed, and its child execution is closed too, or absent at two such
  checks. A closed child is exact: Step Functions starts no second execution of its name.
- LEASED: not decided here. A lease has no execution and no run; its end alone decides (lease_protocol.py).

A run of the janitor checks Glue jobs by one search per job for all its dead holders (GlueChecks), and state machines by
one DescribeExecution per holder (ChildChecks).
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from slotkeeper.settings import MAX_WEIGHT
from slotkeeper.slots.executions import FORGOTTEN_AFTER, Execution, Workflow
from slotkeeper.slots.request import check_key, process_of_execution
from slotkeeper.slots.run_report import RunReport, in_turns, is_outage
from slotkeeper.slots.targets import is_state_machine
from slotkeeper.slots.work import CLOCK_DIFFERENCE_SECONDS, Children, GlueRuns, JobRunSearch, NoSuchJob, Work, WorkCheck

if TYPE_CHECKING:
    from slotkeeper.slots.process import Holder, Process
    from slotkeeper.slots.protocol import Slots


class Verdict(Enum):
    """The janitor's conclusion about a holder: from its execution (judge), then from a check of its work."""

    ALIVE = auto()  # its execution, or its work
    CANCEL = auto()  # it has reserved the slot, and its workflow has ended
    CHECK_WORK = auto()  # its execution has ended, and its work decides
    CHECKED_ONCE = auto()
    TOO_SOON = auto()
    NOT_SETTLED = auto()
    HOLDER_CHANGED = auto()
    FREED = auto()


def judge(holder: Holder, execution: Execution | None, now: float, grace: int) -> Verdict:
    """Decide what the janitor may do with a holder, from the state of its execution.

    Args:
        execution: None if Step Functions knows no execution of this name.
        now: seconds since the epoch.
        grace: minimum age, in seconds, of a reservation or of an execution's end.
    """
    age = now - holder.since
    if holder.is_lease:
        return Verdict.ALIVE
    if holder.state == "RESERVED":
        return Verdict.CANCEL if execution is not None and execution.is_closed and age >= grace else Verdict.ALIVE
    if execution is None:
        return Verdict.CHECK_WORK if age >= FORGOTTEN_AFTER else Verdict.ALIVE
    if execution.is_closed and execution.stopped_at is not None and now - execution.stopped_at >= grace:
        return Verdict.CHECK_WORK
    return Verdict.ALIVE


@dataclass(frozen=True)
class Held:
    """A slot as it was read, and its holder. `closed_at`: when the workflow ended, epoch seconds; None if unknown."""

    process: Process
    name: str
    holder: Holder
    closed_at: float | None

    @property
    def target(self) -> str:
        return self.holder.target or self.process.target

    @property
    def has_child(self) -> bool:
        """Whether its work is a child execution, and not a Glue run."""
        return is_state_machine(self.target)


# Settles the request of a holder whose work has ended, given its newest run, if one is known. False: that is not done
# yet, and the slot must be kept.
type Settle = Callable[[Held, Work | None, RunReport], bool]


@dataclass(frozen=True)
class DeadHolders:
    """Checks the work of holders and frees their slots. Every write requires that the holder is unchanged.

    Args:
        check_gap: minimum seconds between the two checks.
        clock: seconds since the epoch.
    """

    slots: Slots
    glue: GlueRuns
    children: Children
    check_gap: int
    clock: Callable[[], float]

    def cancel(self, held: Held, report: RunReport) -> bool:
        """Free a reservation; False if the holder has changed since it was read."""
        freed = self.slots.free(held.process.name, held.name, held.holder.raw)
        if freed:
            report.note("SlotsReclaimed", "Freed a reserved slot whose workflow has ended", execution=held.name)
        return freed

    def find_work(self, held: Held, parent_arn: str) -> WorkCheck | None:
        """Check a holder's work; None if that takes more pages of Glue runs than one event can read.

        Args:
            parent_arn: the ARN of its workflow execution.
        """
        now = self.clock()
        if held.has_child:
            return WorkCheck.child(now, self.children.describe(held.target, held.name, parent_arn))
        return self.glue.find_runs(held.target, held.name, held.holder.since, now)

    def conclude(self, held: Held, found: WorkCheck, report: RunReport, settle: Callable[[], bool]) -> Verdict:
        """Evaluate one check of a holder's work, stop work that is alive, and free the slot if none can be.

        The gap is measured from the end of the first check to the start of the second, so one search of Glue runs may
        be long and may cover many holders.

        Args:
            settle: settles the holder's request; False if that is not done yet, so that the slot is kept. It is called
                when the outcome of the work is known.
        """
        newest = found.newest
        if found.running:
            if not (held.holder.redriven or (newest and newest.redrives)):
                self._stop(held, found, report)
            if held.holder.quiet_since is not None:
                self.slots.mark_quiet(held.process.name, held.name, held.holder.raw, None)
            return Verdict.ALIVE
        if newest is not None and found.is_final:
            if self.clock() < newest.settles_at(held.process.settle_seconds):
                return Verdict.TOO_SOON
        elif (verdict := self._check_again(held, found.checked_at)) is not None:
            return verdict
        return self._free(held, report) if settle() else Verdict.NOT_SETTLED

    def _stop(self, held: Held, found: WorkCheck, report: RunReport) -> None:
        if held.has_child:
            self.children.stop(held.target, held.name)
            report.note("ChildrenStopped", "Stopped a child execution whose workflow has ended", execution=held.name)
        else:
            self.glue.stop(held.target, found.running)
            report.note(
                "GlueRunsStopped",
                "Stopped a Glue run whose workflow has ended",
                runs=list(found.running),
                execution=held.name,
            )

    def _check_again(self, held: Held, checked_at: float) -> Verdict | None:
        """After a check that has found no work: why a further one is needed; None if this is the second."""
        if held.closed_at is not None and checked_at < held.closed_at:
            return Verdict.TOO_SOON
        quiet_since = held.holder.quiet_since
        # A redriven execution keeps its holder, so a check from before its last end does not count.
        if quiet_since is None or (held.closed_at is not None and quiet_since < held.closed_at):
            marked = self.slots.mark_quiet(held.process.name, held.name, held.holder.raw, self.clock())
            return Verdict.CHECKED_ONCE if marked else Verdict.HOLDER_CHANGED
        return Verdict.TOO_SOON if checked_at - quiet_since < self.check_gap else None

    def _free(self, held: Held, report: RunReport) -> Verdict:
        if not self.slots.free(held.process.name, held.name, held.holder.raw):
            return Verdict.HOLDER_CHANGED
        report.note("SlotsReclaimed", "Freed the slot of a workflow that has ended", execution=held.name)
        return Verdict.FREED


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
    """Checks Glue in a run of the janitor: one search per job for all its dead holders, the jobs in turns.

    A search lists a job's runs from the newest back to the oldest reservation, 200 per page. For a job with many runs
    and a holder that is a day old, these are thousands of pages. Therefore:

    - Jobs take turns of a few pages.
    - A holder is judged as soon as the search has passed its reservation.
    - The next janitor run continues a search that this one could not finish.
    - After an outage of Glue the run makes no further Glue call. If Glue refuses one job, only its holders are skipped.

    Args:
        shuffle: puts the jobs into random order, so that no job is always the last.
        settle: settles the request of a holder.
    """

    dead: DeadHolders
    shuffle: Callable[[list[str]], None]
    settle: Settle
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
            found = search.found(held.name)
            verdict = self.dead.conclude(held, found, report, lambda: self.settle(held, found.newest, report))
            if verdict is Verdict.FREED:
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


@dataclass
class ChildChecks:
    """Checks child executions in a run of the janitor: of dead holders, and those that were redriven manually.

    A holder whose target is a state machine is judged by one DescribeExecution of its child; no list is needed. The
    targets take turns, and a target that Step Functions refuses delays only its own holders. DescribeExecution has a
    quota of 15 per second (Step Functions guide, "Service quotas"), so a run may end before the last holder. The next
    run continues, in another order.
    """

    dead: DeadHolders
    workflow: Workflow
    settle: Settle
    _unfinished: dict[str, Iterator[str | None]] = field(default_factory=dict, init=False)  # target -> rest of its list

    def check(self, holders: Iterable[Held], report: RunReport, until: float) -> list[Held]:
        """Check these holders until `until` (epoch seconds); return those whose slots were freed."""
        freed: list[Held] = []
        for held in in_turns(holders, lambda each: each.target):
            if self.dead.clock() >= until:
                report.cut_short("The run's time has ended; the next run checks the other child executions")
                break
            try:
                if self._conclude(held, report) is Verdict.FREED:
                    freed.append(held)
            except Exception as error:
                report.could_not_check(
                    "Could not check a child execution; its slot is kept", error, [held.name], held.target
                )
                if is_outage(error):
                    break
        return freed

    def _conclude(self, held: Held, report: RunReport) -> Verdict:
        found = self.dead.find_work(held, self.workflow.execution_arn(held.name))
        if found is None:
            return Verdict.ALIVE
        return self.dead.conclude(held, found, report, lambda: self.settle(held, found.newest, report))

    def adopt_redriven(self, processes: Sequence[Process], report: RunReport, until: float) -> None:
        """Adopt the children of our workflow that were redriven manually and hold no slot, until `until`.

        A closed execution can be redriven for 14 days (Step Functions API Reference, RedriveExecution). The slot of
        such a child was freed when it had closed, so that it runs outside the limit. It is not stopped, because an
        operator wants its work: it is counted as a holder, which keeps other requests out.

        A target that is also used without slots may have hundreds of thousands of running executions, in hundreds of
        pages. So the targets take turns of a page, and the next run continues the lists that this one cannot finish.
        """
        by_name = {process.name: process for process in processes}
        used = [held.target for process in processes for held in process.holders.values()]
        used += [process.target for process in processes]
        targets = list(filter(is_state_machine, used))
        lists, self._unfinished = self._unfinished, {}
        # The unfinished ones first, in their order.
        due = [target for target in dict.fromkeys([*lists, *targets]) if target in targets]
        turns = deque((target, lists.get(target) or self.dead.children.redriven(target)) for target in due)
        while turns:
            if self.dead.clock() >= until:
                self._unfinished = dict(turns)
                return report.cut_short(
                    "The run's time has ended; the next run continues the lists of child executions"
                )
            target, names = turns.popleft()
            try:
                if not self._adopt_page(target, names, by_name, report, until):
                    turns.append((target, names))
            except Exception as error:
                report.failed("Could not list the redriven executions of a state machine", error, target=target)
                if is_outage(error):
                    self._unfinished = dict(turns)
                    return None
        return None

    def _adopt_page(
        self,
        target: str,
        names: Iterator[str | None],
        processes: Mapping[str, Process],
        report: RunReport,
        until: float,
    ) -> bool:
        """Adopt the children of one page, until `until`; True at the end of the list."""
        for name in names:
            if name is None:
                return False
            process = processes.get(process_of_execution(name))
            if process and name not in process.holders:
                with report.guard("Could not adopt a child execution that was redriven", execution=name):
                    self._adopt(process, target, name, report)
            if self.dead.clock() >= until:
                return False
        return True

    def _adopt(self, process: Process, target: str, name: str, report: RunReport) -> None:
        child = self.dead.children.describe(target, name, self.workflow.execution_arn(name))
        if child is None or child.is_closed:
            return
        execution = self.workflow.describe(name)
        if execution is not None and not execution.is_closed:
            return  # it may still release the slot of this name
        weight, key = weight_and_key(execution, process)
        if self.dead.slots.adopt(process.name, name, self.dead.clock(), target, weight, key=key, redriven=True):
            report.note("ChildRedriven", "Adopted a child execution that was redriven outside a slot", execution=name)


def weight_and_key(execution: Execution | None, process: Process) -> tuple[int, str]:
    """The weight and the key in the input of a request's execution; the default weight and no key if it has none."""
    fields: Any = None
    with suppress(ValueError, RecursionError):
        fields = json.loads(execution.input) if execution else None
    fields = fields if isinstance(fields, dict) else {}
    weight, key = fields.get("weight"), fields.get("key")
    is_weight = type(weight) is int and 1 <= weight <= MAX_WEIGHT
    try:
        check_key(key if isinstance(key, str) else "")
    except ValueError:
        key = ""
    return weight if is_weight else process.default_weight, key
