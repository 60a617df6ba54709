"""Checks of the slots: processes, their Glue jobs, holders and waiting requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial

from slotkeeper.next_step import next_step, shell_text
from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots.lost_requests import send_again
from slotkeeper.slots.process import Process, WaitingRequest
from slotkeeper.slots.targets import NO_TARGET
from slotkeeper_cli.conditions import as_dict, label, waiting_requests
from slotkeeper_cli.doctor.facts import Facts
from slotkeeper_cli.doctor.health_checks import Finding, HealthCheck, problem, warn
from slotkeeper_cli.formatting import count, duration, iso, local_time
from slotkeeper_cli.holders import grace_seconds, holders_text
from slotkeeper_cli.target_checks import job_problems, machine_problems, max_concurrent_runs, most_holders
from slotkeeper_cli.write_units import size_problems

# Seconds after the grace time within which the janitor releases a dead holder: two runs, and two checks.
_JANITOR_SECONDS = 600
_OPEN = ("RUNNING", "PENDING_REDRIVE")
_SOON_SECONDS = 900  # before a deadline, in which an operator can still act


def malformed(facts: Facts) -> Iterator[Finding]:
    for one in facts.malformed:
        yield problem(
            str(one),
            f"{next_step('process repair', one.process)}; until then the requests of the process stay in the queue",
        )
    if not facts.processes and not facts.malformed:
        yield warn("there is no process, so every request is dead-lettered", "slotkeeper process add")


def drift(facts: Facts) -> Iterator[Finding]:
    for one in facts.processes:
        weights = [holder.weight for holder in one.holders.values()]
        if one.has_drifted:
            yield problem(
                f"process {one.name}: slots_in_use is {one.slots_in_use} for {holders_text(weights)}",
                "the janitor repairs it in its next run, within two minutes; if not, slotkeeper stack reconcile",
            )


def paused(facts: Facts) -> Iterator[Finding]:
    for one in facts.processes:
        if one.paused:
            yield warn(
                f"process {one.name} is paused and admits no request",
                f"{next_step('process resume', one.name)}, when it is to admit requests again",
            )
        elif one.slot_limit == 0:
            saw = f"process {one.name} has no slots and admits no request"
            yield warn(saw, next_step("process set-limit", one.name, 1))


def targets(facts: Facts) -> Iterator[Finding]:
    for one in facts.processes:
        for text in _target_problems(facts, one.target):
            saw, _, do = text.partition(": ")
            yield problem(f"process {one.name}: {saw}", do)


def _target_problems(facts: Facts, target: str) -> list[str]:
    if target == NO_TARGET:
        return []
    if target in facts.jobs:
        return job_problems(target, facts.jobs[target], facts.allowed_jobs)
    return machine_problems(target, facts.machines[target], facts.allowed_machines, facts.key)


def concurrency(facts: Facts) -> Iterator[Finding]:
    """Add the holders that the processes that share a job may have."""
    slots: defaultdict[str, int] = defaultdict(int)
    for one in facts.processes:
        if one.target in facts.jobs:
            slots[one.target] += most_holders(one.slot_limit, one.default_weight)
    for name, wanted in sorted(slots.items()):
        job = facts.jobs[name]
        if job is None:
            continue
        most = max_concurrent_runs(job)
        saw = f"Glue job {name} allows {count(most, 'concurrent run')} (MaxConcurrentRuns) for {count(wanted, 'slot')}"
        if most < wanted:
            yield problem(saw, f"set it above {wanted}; until then requests hold slots while Glue refuses their runs")
        elif most == wanted:
            yield warn(
                saw, "set it higher: Glue counts a run for some seconds after it has ended, and refuses the next"
            )


def item_size(facts: Facts) -> Iterator[Finding]:
    for one in facts.processes:
        holders = most_holders(one.slot_limit, one.default_weight)
        for text in size_problems(one, holders, facts.run_seconds[one.target]):
            saw, _, do = text.rpartition(": ")
            yield warn(saw, do)


def timeouts(facts: Facts) -> Iterator[Finding]:
    usual = int(facts.parameters.get("WorkTimeoutMinutes") or 480)
    starts = {(one.target, one.timeout_minutes or usual) for one in facts.processes if one.target in facts.jobs}
    for name, minutes in sorted(starts):
        own = (facts.jobs[name] or {}).get("Timeout", minutes)
        if own < minutes:
            yield warn(
                f"Glue job {name} has a timeout of {own} min, but the stack starts its runs with {minutes} min",
                f"if a run should end sooner, add its process again with --timeout-minutes {own}, or deploy with "
                f"WorkTimeoutMinutes={own}, which applies to every process without its own",
            )


def closed_holders(facts: Facts) -> Iterator[Finding]:
    after = grace_seconds(facts.parameters) + _JANITOR_SECONDS
    for one in facts.held:
        if one.expired_for is not None:
            if one.expired_for > _JANITOR_SECONDS:
                yield problem(
                    f"process {one.process}: lease {one.execution} held {duration(one.expired_for)} past its end",
                    f"{next_step('holder release', one.execution)}; see the janitor's log for why it did not remove it",
                )
        elif one.age > after and one.status not in _OPEN:
            status = f"its execution is {one.status}" if one.status else "it has no execution"
            yield problem(
                f"process {one.process}: {one.execution} has held a slot for {duration(one.age)}, but {status}",
                f"{next_step('holder release', one.execution)}; see the janitor's log for why it did not release it",
            )


def unheld_runs(facts: Facts) -> Iterator[Finding]:
    """Runs above the limit, as after a restore of SlotTable, or after a StartJobRun whose response was lost."""
    for job, run, execution in facts.unheld_runs:
        yield problem(
            f"Glue run {run} of job {job} is alive, but {execution}, which started it, holds no slot",
            f"if {execution} is running, slotkeeper stack reconcile; otherwise stop the run if it is not needed: "
            + shell_text("aws", "glue", "batch-stop-job-run", f"--job-name={job}", f"--job-run-ids={run}"),
        )


def _waiting(facts: Facts) -> Iterator[tuple[Process, WaitingRequest]]:
    """The waiting requests. None waits if no message is hidden, and one that has run may be registered."""
    if int(facts.queues["RequestQueue"].get("ApproximateNumberOfMessagesNotVisible", 0)):
        for process in facts.processes:
            for one in waiting_requests(process, facts.now):
                yield process, one


def blocked(facts: Facts) -> Iterator[Finding]:
    """A process without slots is a finding of `paused`."""
    for process, one in _waiting(facts):
        if process.slot_limit and process.is_blocked(one) and not facts.execution_status(one.execution):
            named = label(as_dict(process, one, facts.now))
            yield problem(
                f"process {process.name} never admits {named}, which is above its limit of {process.slot_limit}",
                f"{next_step('process set-limit', process.name, one.weight)}, or "
                f"{next_step('request cancel', one.request_id)}; until then requests of its priority wait behind it",
            )


def waiting(facts: Facts) -> Iterator[Finding]:
    for process, one in _waiting(facts):
        fits = one == process.first and process.fits(one.weight, one.token_bytes)
        if fits and process.is_due(facts.now - CLOCK_SKEW_SECONDS) and not facts.execution_status(one.execution):
            shown = as_dict(process, one, facts.now)
            free = count(process.slot_limit - process.slots_in_use, "free slot")
            yield warn(
                f"process {process.name} has {free}, but {label(shown)} has waited for "
                f"{duration(shown['waited_seconds'])}",
                "the janitor's next run wakes it, within two minutes; if not, slotkeeper stack reconcile",
            )


def deadlines(facts: Facts) -> Iterator[Finding]:
    for process, one in _waiting(facts):
        if one.start_before is None or facts.execution_status(one.execution):
            continue
        left = one.start_before - facts.now
        if process.paused or process.is_blocked(one) or left < _SOON_SECONDS:
            shown = as_dict(process, one, facts.now)
            yield warn(
                f"process {process.name}: {label(shown)} must start within {duration(left)}, before "
                f"{local_time(one.start_before)}, and waits: {shown['because']}",
                f"{next_step('explain', one.request_id)}; after that time it is dead-lettered as TooLate",
            )


def lost(facts: Facts) -> Iterator[Finding]:
    """The janitor drops a note when its request has an execution, at its next run."""
    for process in facts.processes:
        for execution, one in process.lost.items():
            if one.reported is None or facts.execution_status(execution):
                continue
            command = send_again(process.name, execution, one)
            again = f"send it again with its arguments, once: {command}" if command else "its caller must repeat it"
            yield problem(
                f"process {process.name}: the message of {one.request_id or execution}, sent at {iso(one.since)}, "
                "no longer exists, and it was not started",
                f"{again}; unless slotkeeper dlq list request shows it",
            )


_of_processes = partial(HealthCheck, of_processes=True)
CHECKS = (
    HealthCheck("processes", "no item of SlotTable is malformed", malformed),
    _of_processes("drift", "slots_in_use of each process is the sum of its holders' weights", drift),
    _of_processes("paused", "each process admits requests", paused),
    _of_processes("targets", "the target of each process exists, can be used, and may be run by the workflow", targets),
    _of_processes("job-concurrency", "MaxConcurrentRuns of each job is above the slots of its processes", concurrency),
    _of_processes("item-size", "jobs can keep all slots of a process busy, and its callers' tokens fit", item_size),
    _of_processes("job-timeouts", "no run is started with more time than the timeout of its job", timeouts),
    _of_processes("holders", "no holder's execution has ended, and no lease has expired", closed_holders),
    _of_processes("unheld-runs", "each live Glue run of the workflow has a slot", unheld_runs),
    _of_processes("waiting", "no request waits although a slot is free", waiting),
    _of_processes("blocked", "no waiting request has a weight above the limit", blocked),
    _of_processes("deadlines", "each waiting request can start before its start_before", deadlines),
    _of_processes("lost", "no waiting request has lost its message", lost),
)
