"""Checks of flow 1: processes, their Glue jobs, and who holds or awaits a slot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from slotkeeper.slots.process import Process
from slotkeeper_cli.doctor.facts import Facts
from slotkeeper_cli.doctor.health_checks import Finding, HealthCheck, problem, warn
from slotkeeper_cli.formatting import count, duration
from slotkeeper_cli.job_checks import job_problems
from slotkeeper_cli.write_units import size_problems

# Seconds beyond the grace time in which the janitor releases a dead holder: two of its runs, and two checks.
_JANITOR_SECONDS = 600
_OPEN = ("RUNNING", "PENDING_REDRIVE")


def _processes(facts: Facts) -> list[Process]:
    return [one for one in facts.processes if isinstance(one, Process)]


def malformed(facts: Facts) -> Iterator[Finding]:
    """A process whose item cannot be read admits no request."""
    for one in facts.processes:
        if not isinstance(one, Process):
            yield problem(
                str(one), "correct the attribute in SlotTable; the starter leaves its requests alone until then"
            )
    if not facts.processes:
        yield warn("there is no process, so every request is dead-lettered", "slotkeeper process add")


def drift(facts: Facts) -> Iterator[Finding]:
    for one in _processes(facts):
        if one.has_drifted:
            yield problem(
                f"process {one.name}: slots_in_use is {one.slots_in_use} for {count(len(one.holders), 'holder')}",
                "the janitor repairs it in its next run; if it stays, slotkeeper stack reconcile",
            )


def paused(facts: Facts) -> Iterator[Finding]:
    for one in _processes(facts):
        if one.paused:
            yield warn(
                f"process {one.name} is paused and admits no request",
                f"slotkeeper process resume {one.name}, when it may go on",
            )
        elif one.slot_limit == 0:
            yield warn(
                f"process {one.name} has no slots and admits no request", f"slotkeeper process set-limit {one.name} 1"
            )


def jobs(facts: Facts) -> Iterator[Finding]:
    for one in _processes(facts):
        for text in job_problems(one.job_name, facts.jobs[one.job_name], facts.allowed_jobs):
            saw, _, do = text.partition(": ")
            yield problem(f"process {one.name}: {saw}", do)


def concurrency(facts: Facts) -> Iterator[Finding]:
    """Processes may share a job, whose runs then add up."""
    slots: defaultdict[str, int] = defaultdict(int)
    for one in _processes(facts):
        slots[one.job_name] += one.slot_limit
    for name, wanted in sorted(slots.items()):
        job = facts.jobs[name]
        if job is None:
            continue
        most = job.get("ExecutionProperty", {}).get("MaxConcurrentRuns", 1)
        saw = f"Glue job {name} allows {count(most, 'run')} at once (MaxConcurrentRuns) for {count(wanted, 'slot')}"
        if most < wanted:
            yield problem(saw, f"set it above {wanted}: until then slots are held by runs that Glue refuses")
        elif most == wanted:
            yield warn(
                saw, "set it higher: Glue counts a run for some seconds after it has ended, and refuses the next"
            )


def item_size(facts: Facts) -> Iterator[Finding]:
    """A write is paid by the size of the item, and one item has only so many."""
    for one in _processes(facts):
        for text in size_problems(one.name, one.job_name, one.slot_limit):
            saw, _, do = text.rpartition(": ")
            yield warn(saw, do)


def timeouts(facts: Facts) -> Iterator[Finding]:
    minutes = int(facts.parameters.get("GlueTimeoutMinutes") or 480)
    for name, job in facts.jobs.items():
        own = (job or {}).get("Timeout", minutes)
        if own < minutes:
            yield warn(
                f"Glue job {name} has a timeout of {own} min, and the stack gives its runs {minutes} min",
                f"if a run should end sooner, deploy with GlueTimeoutMinutes={own}: it holds for every process",
            )


def closed_holders(facts: Facts) -> Iterator[Finding]:
    after = int(facts.parameters.get("GraceSeconds") or 120) + _JANITOR_SECONDS
    for one in facts.held:
        if one.age > after and one.status not in _OPEN:
            state = one.status or "unknown to Step Functions"
            yield problem(
                f"process {one.process}: {one.execution} has held a slot for {duration(one.age)}, and is {state}",
                f"see the janitor's log; slotkeeper holder release {one.execution} releases it",
            )


def unheld_runs(facts: Facts) -> Iterator[Finding]:
    """After a restore of SlotTable, or a StartJobRun whose answer was lost: they are above the limit."""
    for job, run, execution in facts.unheld_runs:
        yield problem(
            f"Glue run {run} of job {job} is alive, and {execution}, which started it, holds no slot",
            f"slotkeeper stack reconcile, if {execution} runs; else aws glue batch-stop-job-run --job-name {job} "
            f"--job-run-ids {run}, if it is not needed",
        )


def waiting(facts: Facts) -> Iterator[Finding]:
    """A registration stays until the next one, so who has started since waits no longer."""
    if not int(facts.queues["RequestQueue"].get("ApproximateNumberOfMessagesNotVisible", 0)):
        return
    for one in _processes(facts):
        first = one.waiting_execution
        if not first or not one.has_free_slot or first in one.holders or facts.execution_status(first):
            continue
        since = duration(facts.now - (one.waiting_since or facts.now))
        yield warn(
            f"process {one.name} has a free slot, and {first} has waited for {since}",
            "the janitor's next run wakes it at the latest; if it stays, slotkeeper stack reconcile",
        )


CHECKS = (
    HealthCheck("processes", "each process can be read", malformed),
    HealthCheck("drift", "slots_in_use is the number of holders", drift),
    HealthCheck("paused", "each process admits requests", paused),
    HealthCheck("jobs", "each process's Glue job exists, has neither retries nor queuing, and may be run", jobs),
    HealthCheck(
        "job-concurrency", "MaxConcurrentRuns is above the slots of the processes that share a job", concurrency
    ),
    HealthCheck("item-size", "jobs of a minute can keep all slots of a process busy", item_size),
    HealthCheck("job-timeouts", "the stack's GlueTimeoutMinutes is not beyond a job's own timeout", timeouts),
    HealthCheck("holders", "no holder's execution has ended", closed_holders),
    HealthCheck("unheld-runs", "each live Glue run of the workflow's holds a slot", unheld_runs),
    HealthCheck("waiting", "no request waits although a slot is free", waiting),
)
