"""Checks of flow 1: processes, their Glue jobs, and who holds or awaits a slot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from slotkeeper.slots.process import Process
from slotkeeper_cli.doctor.facts import Facts
from slotkeeper_cli.doctor.findings import Check, Finding, problem, warn
from slotkeeper_cli.jobs import unfit
from slotkeeper_cli.words import count, duration
from slotkeeper_cli.write_units import large

# Seconds beyond the grace time after which the janitor should have freed a dead holder: two rounds, and two looks.
_ROUNDS = 600
_OPEN = ("RUNNING", "PENDING_REDRIVE")


def _processes(facts: Facts) -> list[Process]:
    return [one for one in facts.processes if isinstance(one, Process)]


def malformed(facts: Facts) -> Iterator[Finding]:
    """A process whose item cannot be read admits nobody, or everybody."""
    for one in facts.processes:
        if not isinstance(one, Process):
            yield problem(
                str(one), "correct the attribute in SlotTable; the starter leaves its requests alone until then"
            )
    if not facts.processes:
        yield warn("there is no process, so every request is dead-lettered", "slotkeeper process add makes one")


def drift(facts: Facts) -> Iterator[Finding]:
    for one in _processes(facts):
        if one.has_drifted:
            yield problem(
                f"process {one.name}: slots_in_use is {one.slots_in_use} beside {count(len(one.holders), 'holder')}",
                "the janitor repairs it in its next round; if it stays, slotkeeper stack reconcile",
            )


def paused(facts: Facts) -> Iterator[Finding]:
    for one in _processes(facts):
        if one.paused:
            yield warn(
                f"process {one.name} is paused and admits nobody",
                f"slotkeeper process resume {one.name}, when it may go on",
            )
        elif one.slot_limit == 0:
            yield warn(
                f"process {one.name} has no slots and admits nobody", f"slotkeeper process set-limit {one.name} 1"
            )


def jobs(facts: Facts) -> Iterator[Finding]:
    for one in _processes(facts):
        for text in unfit(one.job_name, facts.jobs[one.job_name], facts.allowed_jobs):
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
            yield warn(saw, "set it higher: Glue counts a run for some seconds after it is over, and refuses the next")


def item_size(facts: Facts) -> Iterator[Finding]:
    """A write is paid by the size of the item, and one item has only so many."""
    for one in _processes(facts):
        for text in large(one.name, one.job_name, one.slot_limit):
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
    after = int(facts.parameters.get("GraceSeconds") or 120) + _ROUNDS
    for one in facts.held:
        if one.age > after and one.status not in _OPEN:
            state = one.status or "unknown to Step Functions"
            yield problem(
                f"process {one.process}: {one.execution} has held a slot for {duration(one.age)}, and is {state}",
                f"see what the janitor's log says of it; slotkeeper holder release {one.execution} frees it",
            )


def unheld_runs(facts: Facts) -> Iterator[Finding]:
    """After a restore of SlotTable, or a StartJobRun whose answer was lost: they are above the limit."""
    for job, run, execution in facts.unheld_runs:
        yield problem(
            f"Glue run {run} of job {job} is alive, and {execution}, which started it, holds no slot",
            f"slotkeeper stack reconcile, if {execution} runs; else aws glue batch-stop-job-run --job-name {job} "
            f"--job-run-ids {run}, if nobody needs it",
        )


def waiting(facts: Facts) -> Iterator[Finding]:
    """A registration stays until the next one, so who has started since waits no longer."""
    if not int(facts.queues["RequestQueue"].get("ApproximateNumberOfMessagesNotVisible", 0)):
        return
    for one in _processes(facts):
        first = one.waiting_execution
        if not first or not one.has_room or first in one.holders or facts.execution_status(first):
            continue
        since = duration(facts.now - (one.waiting_since or facts.now))
        yield warn(
            f"process {one.name} has room, and {first} has waited for {since}",
            "it is being woken, by the janitor's next round at the latest; if it stays, slotkeeper stack reconcile",
        )


CHECKS = (
    Check("processes", "each process can be read", malformed),
    Check("drift", "slots_in_use is the number of holders", drift),
    Check("paused", "each process admits requests", paused),
    Check("jobs", "each process's Glue job exists, has neither retries nor queuing, and may be run", jobs),
    Check("job-concurrency", "MaxConcurrentRuns is above the slots of the processes that share a job", concurrency),
    Check("item-size", "usual jobs can keep all slots of a process busy", item_size),
    Check("job-timeouts", "the stack's GlueTimeoutMinutes is not beyond a job's own timeout", timeouts),
    Check("holders", "nobody holds a slot whose execution is over", closed_holders),
    Check("unheld-runs", "each live Glue run of the workflow's holds a slot", unheld_runs),
    Check("waiting", "nobody waits beside room", waiting),
)
