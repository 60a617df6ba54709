"""Checks of what processes run: Glue jobs and state machines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from slotkeeper.next_step import shell_text
from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.process import Process
from slotkeeper.slots.request import process_of_execution
from slotkeeper.slots.targets import GLUE_JOB, STATE_MACHINE, TargetKind, kind_of
from slotkeeper.slots.work import CLOCK_DIFFERENCE_SECONDS
from slotkeeper_cli.doctor.health_checks import Finding, HealthCheck
from slotkeeper_cli.doctor.readings import reading
from slotkeeper_cli.formatting import count
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.target_checks import max_concurrent_runs, most_holders, target_in
from slotkeeper_cli.write_units import size_problems

if TYPE_CHECKING:
    from slotkeeper_cli.account import Account


@reading
def jobs(account: Account) -> dict[str, dict[str, Any] | None]:
    """The Glue jobs of the processes, by name; None for a job that does not exist."""
    return _described(account, GLUE_JOB)


@reading
def machines(account: Account) -> dict[str, dict[str, Any] | None]:
    """The state machines of the processes, by ARN; None for one that does not exist."""
    return _described(account, STATE_MACHINE)


def _described(account: Account, kind: TargetKind) -> dict[str, dict[str, Any] | None]:
    targets = {one.target for one in account.processes()[0]} - {NO_TARGET}
    names = sorted(target for target in targets if kind_of(target) is kind)
    return dict(zip(names, in_parallel(lambda name: target_in(account.stack, name).describe(), names), strict=True))


@reading
def runs_without_slot(account: Account) -> list[tuple[str, str, str]]:
    """Live Glue runs whose execution holds no slot, as (job, run, execution), of each job's newest 200 runs.

    Without the runs of the last minute, whose execution may have become a holder after the table was read, and without
    those of malformed processes, whose holders are not known.
    """
    now, names = time.time(), [name for name, job in jobs(account).items() if job is not None]

    def live(job: str) -> Mapping[str, Mapping[str, float | None]]:
        search = account.control.glue.search_runs(job, now)
        search.read_page()
        return search.alive

    processes, malformed = account.control.read_all()  # the kept reading may be older than a minute
    held = {name for process in processes for name in process.holders}
    unread = {one.process for one in malformed}
    return [
        (job, run, execution)
        for job, runs in zip(names, in_parallel(live, names), strict=True)
        for execution, started_at in runs.items()
        for run, started in started_at.items()
        if execution not in held and process_of_execution(execution) not in unread
        if started is not None and started < now - CLOCK_DIFFERENCE_SECONDS
    ]


def targets(account: Account, _now: float) -> Iterator[Finding]:
    for one in account.processes()[0]:
        if one.target == NO_TARGET:
            continue
        described = (jobs if kind_of(one.target) is GLUE_JOB else machines)(account)[one.target]
        for text in target_in(account.stack, one.target).problems(described):
            what, _, do = text.partition(": ")
            yield Finding("bad", f"process {one.name}: {what}", do, process=one.name)


def concurrency(account: Account, _now: float) -> Iterator[Finding]:
    for name, job in jobs(account).items():
        if job is not None:
            yield from _concurrency(account, name, job)


def _concurrency(account: Account, name: str, job: Mapping[str, Any]) -> Iterator[Finding]:
    """Add the holders that the processes that share a job may have."""
    sharing = (one for one in account.processes()[0] if one.target == name)
    most, wanted = max_concurrent_runs(job), sum(most_holders(one.slot_limit, one.default_weight) for one in sharing)
    what = f"Glue job {name} allows {count(most, 'concurrent run')} (MaxConcurrentRuns) for {count(wanted, 'slot')}"
    if most < wanted:
        why = f"Set it above {wanted}. Until then requests hold slots while Glue refuses their runs."
        yield Finding("bad", what, why)
    elif most == wanted:
        why = "Set it higher: Glue counts a run for some seconds after it has ended, and refuses the next."
        yield Finding("warn", what, why)


def item_size(account: Account, _now: float) -> Iterator[Finding]:
    for one in account.processes()[0]:
        yield from _item_size(account, one)


def _item_size(account: Account, one: Process) -> Iterator[Finding]:
    holders = most_holders(one.slot_limit, one.default_weight)
    for text in size_problems(one, holders, account.usual_seconds(one.target)):
        what, _, do = text.rpartition(": ")
        yield Finding("warn", what, do, process=one.name)


def limit_findings(account: Account, one: Process) -> Iterator[Finding]:
    """Why fewer requests of a process may run than its limit allows: its job, and the size of its item."""
    is_job = one.target != NO_TARGET and kind_of(one.target) is GLUE_JOB
    if is_job and (job := target_in(account.stack, one.target).describe()):
        yield from _concurrency(account, one.target, job)
    yield from _item_size(account, one)


def timeouts(account: Account, _now: float) -> Iterator[Finding]:
    usual, known = int(account.stack.parameters.get("WorkTimeoutMinutes") or 480), jobs(account)
    starts = {(one.target, one.timeout_minutes or usual) for one in account.processes()[0] if one.target in known}
    for name, minutes in sorted(starts):
        own = (known[name] or {}).get("Timeout", minutes)
        if own < minutes:
            yield Finding(
                "warn",
                f"Glue job {name} has a timeout of {own} min, but the stack starts its runs with {minutes} min",
                f"If a run should end sooner, add its process again with --timeout-minutes {own}, or deploy with "
                f"WorkTimeoutMinutes={own}, which applies to every process without its own.",
            )


def unheld_runs(account: Account, _now: float) -> Iterator[Finding]:
    """Runs above the limit, as after a restore of SlotTable, or after a StartJobRun whose response was lost."""
    for job, run, execution in runs_without_slot(account):
        stop = shell_text("aws", "glue", "batch-stop-job-run", f"--job-name={job}", f"--job-run-ids={run}")
        yield Finding(
            "bad",
            f"Glue run {run} of job {job} is alive, but {execution}, which started it, holds no slot",
            f"If {execution} does not run, and the run is not needed, stop it: {stop}",
            "slotkeeper stack reconcile",
        )


_of_processes = partial(HealthCheck, of_processes=True)
CHECKS = (
    _of_processes("targets", "the target of each process exists, can be used, and may be run by the workflow", targets),
    _of_processes("job-concurrency", "MaxConcurrentRuns of each job is above the slots of its processes", concurrency),
    _of_processes("item-size", "jobs can keep all slots of a process busy", item_size),
    _of_processes("job-timeouts", "no run is started with more time than the timeout of its job", timeouts),
    _of_processes("unheld-runs", "each live Glue run of the workflow has a slot", unheld_runs),
)
