"""Checks of the slots: processes, their Glue jobs, holders and queued requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

from slotkeeper.next_step import next_step, shell_text
from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.process import Process
from slotkeeper_cli.conditions import because
from slotkeeper_cli.doctor.facts import Facts
from slotkeeper_cli.doctor.health_checks import Finding, HealthCheck, problem, warn
from slotkeeper_cli.formatting import count, duration, local_time
from slotkeeper_cli.holders import grace_seconds, holders_text
from slotkeeper_cli.process_queue import ProcessQueue, QueuedRequest, label
from slotkeeper_cli.target_checks import job_problems, machine_problems, max_concurrent_runs, most_holders
from slotkeeper_cli.write_units import size_problems

# Seconds after the grace time within which the janitor releases a dead holder: two runs, and two checks.
_JANITOR_SECONDS = 600
_OPEN = ("RUNNING", "PENDING_REDRIVE")
_SOON_SECONDS = 900  # before a deadline, in which an operator can still act
_LATE_RING_SECONDS = 60
_LATE_END_SECONDS = 300  # the janitor publishes once a minute what the function of endings could not
_NAMED = 5


def malformed(facts: Facts) -> Iterator[Finding]:
    for one in facts.malformed:
        queue = facts.queued[one.process]
        waits = f": {queue.number} queued ({_named(queue.requests)}) wait" if queue.requests else ""
        yield problem(
            f"{one}{waits}", f"{next_step('process repair', one.process)}; until then no request of the process starts"
        )
    if not facts.processes and not facts.malformed:
        yield warn("there is no process, so every request is rejected", "slotkeeper process add")


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


def _named(requests: Sequence[QueuedRequest]) -> str:
    ids = [each.request_id for each in requests[:_NAMED]]
    return ", ".join([*ids, *(["..."] if len(requests) > _NAMED else [])])


def rows(facts: Facts) -> Iterator[Finding]:
    for name, queue in facts.queued.items():
        for text in queue.malformed:
            yield problem(
                f"process {name}: a row of RequestTable is malformed: {text}",
                "correct it in the table of the output RequestTableName, or delete it and submit its request again",
            )
        if queue.is_cut:
            saw = f"process {name} has {queue.number} queued requests, of which only these were checked"
            yield warn(saw, next_step("request list", name))


def blocked(facts: Facts) -> Iterator[Finding]:
    """A process without slots is a finding of `paused`."""
    for process in facts.processes:
        queue = facts.queued[process.name]
        above = [each for each in queue.requests if process.slot_limit and each.weight > process.slot_limit]
        if above:
            heaviest = max(above, key=lambda each: each.weight)
            yield problem(
                f"process {process.name} has {count(len(above), 'queued request')} above its limit of "
                f"{process.slot_limit}, such as {_label(heaviest, queue)}",
                f"{next_step('process set-limit', process.name, heaviest.weight)}, or "
                f"{next_step('request cancel', heaviest.request_id)}; until then other requests pass them",
            )


def waiting(facts: Facts) -> Iterator[Finding]:
    for queue, one in facts.idle():
        ring_at = queue.process.ring_at if isinstance(queue.process, Process) else 0
        is_late = ring_at and queue.now - ring_at > _LATE_RING_SECONDS
        ring = f"; a timed ring was due {duration(queue.now - ring_at)} ago, and has not come" if is_late else ""
        yield warn(
            f"process {queue.name}: {_label(one, queue)} has been queued for {duration(queue.now - one.sent)}: "
            f"{because(one.reasons)}{ring}",
            "the janitor's next run dispatches it, within two minutes; if not, see the starter's log, and the check "
            "event-sources",
        )


def deadlines(facts: Facts) -> Iterator[Finding]:
    for process in facts.processes:
        queue = facts.queued[process.name]
        for one in queue.requests:
            if one.start_before is None or (left := one.start_before - facts.now) <= 0:
                continue
            if process.paused or one.weight > process.slot_limit or left < _SOON_SECONDS:
                yield warn(
                    f"process {process.name}: {_label(one, queue)} must start within {duration(left)}, before "
                    f"{local_time(one.start_before)}, and waits: {because(one.reasons)}",
                    f"{next_step('explain', one.request_id)}; after that time it ends as too late",
                )


def stranded(facts: Facts) -> Iterator[Finding]:
    after = grace_seconds(facts.parameters) + _JANITOR_SECONDS
    for one in facts.stranded:
        if (age := facts.now - one.since) > after:
            status = f"its execution ended {one.status}" if one.status else "it has no execution"
            yield problem(
                f"process {one.process}: {one.execution} is STARTED, but {status}, {duration(age)} ago",
                "see the janitor's log for why it did not record the outcome; slotkeeper stack reconcile runs it",
            )


def unpublished(facts: Facts) -> Iterator[Finding]:
    for one in facts.unpublished:
        row, age = one.oldest, facts.now - (one.oldest.ended or facts.now)
        if age > _LATE_END_SECONDS:
            yield problem(
                f"process {row.process}: {one.number} ended and not published, {row.request_id} ({row.state}) for "
                f"{duration(age)}: callers may still wait for their answers",
                "see the logs of the function of endings and of the janitor, and the check event-sources",
            )


def _label(request: QueuedRequest, queue: ProcessQueue) -> str:
    return label(request.as_dict(queue.now))


_of_processes = partial(HealthCheck, of_processes=True)
CHECKS = (
    HealthCheck("processes", "no item of SlotTable is malformed", malformed),
    _of_processes("drift", "slots_in_use of each process is the sum of its holders' weights", drift),
    _of_processes("paused", "each process admits requests", paused),
    _of_processes("targets", "the target of each process exists, can be used, and may be run by the workflow", targets),
    _of_processes("job-concurrency", "MaxConcurrentRuns of each job is above the slots of its processes", concurrency),
    _of_processes("item-size", "jobs can keep all slots of a process busy", item_size),
    _of_processes("job-timeouts", "no run is started with more time than the timeout of its job", timeouts),
    _of_processes("holders", "no holder's execution has ended, and no lease has expired", closed_holders),
    _of_processes("unheld-runs", "each live Glue run of the workflow has a slot", unheld_runs),
    HealthCheck("rows", "no row of a queued request is malformed", rows),
    _of_processes("waiting", "no request is queued although it can start", waiting),
    _of_processes("blocked", "no queued request has a weight above the limit", blocked),
    _of_processes("deadlines", "each queued request can start before its start_before", deadlines),
    _of_processes("started", "each started request has a running execution, or a slot", stranded),
    HealthCheck("published", "the end of each request is published", unpublished),
)
