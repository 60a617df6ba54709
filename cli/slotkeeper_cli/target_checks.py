"""Targets of processes, Glue jobs and state machines: whether a process can use one, its work, and its usual time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import Any

from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.process import MAX_HOLDERS
from slotkeeper.slots.targets import STATE_MACHINE, check_key, check_place, check_type, execution_arn, kind_of, matches
from slotkeeper.slots.work import MAX_PAGES, Children, GlueRuns, NoSuchJob, Work
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.requests import hide_tokens
from slotkeeper_cli.stack_connection import StackConnection

ShownWork = dict[str, str]  # work as JSON shows it: its id and state; of a child execution also its link
NEWEST = 100  # runs of a target that are read: one page
MAX_DESCRIBED = 100  # children of one target
_NOT_READ: ShownWork = {"id": "(not read)", "state": "UNKNOWN"}  # of more work than one answer reads


def most_holders(slot_limit: int, default_weight: int) -> int:
    """The most requests of the default weight that hold slots of a process at the same time."""
    return min(MAX_HOLDERS, slot_limit // default_weight)


def max_concurrent_runs(job: Mapping[str, Any]) -> int:
    return int(job.get("ExecutionProperty", {}).get("MaxConcurrentRuns", 1))


def target_text(target: str) -> str:
    """A target with its kind: `Glue job load`, `state machine arn:...`, `leases only`."""
    if target == NO_TARGET:
        return "leases only"
    return f"{kind_of(target).noun} {target}"


def check_account_and_region(stack: StackConnection, target: str) -> None:
    """Raise ValueError if a state machine is not in the stack's account and Region."""
    _, _, _, region, account, *_ = stack.outputs["WorkflowArn"].split(":")
    check_place(target, account, region)


def target_problems(stack: StackConnection, target: str) -> list[str]:
    """Why requests would fail, or run without a slot, with this target. Each text ends with what to do.

    Raises:
        ValueError: it is an Express workflow, which no workflow can wait for.
    """
    if target == NO_TARGET:
        return []
    found = target_in(stack, target)
    described = found.describe()
    if described and isinstance(found, StateMachineTarget):
        check_type(target, described)
    return found.problems(described)


def usual_seconds(stack: StackConnection, target: str) -> float | None:
    """The median duration of a target's newest successful runs; None if it has none."""
    if target == NO_TARGET:
        return None
    times = target_in(stack, target).usual_times()
    return median(times) if times else None


@dataclass(frozen=True)
class GlueJobTarget:
    """A Glue job as a target: what of it the commands read."""

    stack: StackConnection
    name: str

    def describe(self) -> dict[str, Any] | None:
        """The job as Glue describes it (GetJob); None if it does not exist."""
        glue = self.stack.client("glue")
        try:
            job: dict[str, Any] = glue.get_job(JobName=self.name)["Job"]
        except glue.exceptions.EntityNotFoundException:
            return None
        return job

    def problems(self, job: dict[str, Any] | None) -> list[str]:
        """As `target_problems`, of the job as it was described."""
        if job is None:
            return [f"Glue job {self.name!r} does not exist: create it first"]
        problems = []
        if retries := job.get("MaxRetries", 0):
            what = f"Glue job {self.name} has MaxRetries {retries}"
            problems.append(f"{what}: set it to 0, since a retry by Glue takes no slot")
        if job.get("JobRunQueuingEnabled"):
            # Step Functions' StartJobRun has no documented field that disables queuing for one run.
            problems.append(
                f"Glue job {self.name} has JobRunQueuingEnabled: disable it with UpdateJob, since Glue fails a run "
                "that it has queued for 15 minutes, whereas the workflow retries a start that Glue refuses"
            )
        # The jobs that the workflow's role may run, with IAM's wildcards * and ?.
        more = [arn.rpartition("/")[2] for arn in self.stack.parameters.get("MoreGlueJobArns", "").split(",") if arn]
        if not matches(self.name, [self.stack.outputs["GlueJobName"], *more]):
            what = f"the workflow may not run Glue job {self.name}"
            problems.append(f"{what}: add its ARN to the parameter MoreGlueJobArns")
        return problems

    def usual_times(self) -> list[float]:
        """The durations of the newest successful runs, in seconds."""
        glue = self.stack.client("glue")
        try:
            runs = glue.get_job_runs(JobName=self.name, MaxResults=NEWEST)["JobRuns"]
        except glue.exceptions.EntityNotFoundException:
            return []
        succeeded = (run for run in runs if run["JobRunState"] == "SUCCEEDED")
        return [float(run["ExecutionTime"]) for run in succeeded if "ExecutionTime" in run]

    def work(self, execution: str, since: float) -> ShownWork | None:
        """The newest run of an execution; None if it has none. `since`: when its slot was reserved."""
        return self.works({execution: since}).get(execution)

    def works(self, since: Mapping[str, float]) -> dict[str, ShownWork]:
        """The newest run of each execution that has one, of at most MAX_PAGES pages. `since`: of each holder."""
        search = GlueRuns(self.stack.client("glue")).search_runs(self.name, time.time(), since)
        with suppress(NoSuchJob):
            for _ in range(MAX_PAGES):
                search.read_page()
                if search.covers(min(since.values())) or since.keys() <= search.newest.keys():
                    break
        found = {name: {"id": work.id, "state": work.status} for name, work in search.newest.items()}
        return {name: _NOT_READ for name, at in since.items() if not search.covers(at)} | found

    def output(self, _: str) -> dict[str, str]:
        """A run has no output."""
        return {}


@dataclass(frozen=True)
class StateMachineTarget:
    """A state machine as a target: the same as of a Glue job."""

    stack: StackConnection
    arn: str

    def describe(self) -> dict[str, Any] | None:
        """The state machine as Step Functions describes it (DescribeStateMachine); None if it does not exist."""
        stepfunctions = self.stack.client("stepfunctions")
        try:
            machine: dict[str, Any] = stepfunctions.describe_state_machine(
                stateMachineArn=self.arn,
                includedData="METADATA_ONLY",  # without the definition, which another key may encrypt
            )
        except stepfunctions.exceptions.StateMachineDoesNotExist:
            return None
        return machine

    def problems(self, machine: dict[str, Any] | None) -> list[str]:
        """As `target_problems`, of the state machine as it was described."""
        named, parameters = f"state machine {self.arn}", self.stack.parameters
        if machine is None:
            return [f"{named} does not exist: create it first"]
        problems = []
        if machine.get("type", "STANDARD") != "STANDARD":
            problems.append(f"{named} is of type {machine['type']}: it must be STANDARD")
        if machine.get("status") == "DELETING":
            problems.append(f"{named} is being deleted: create it again under another name")
        try:
            check_key(self.arn, machine, parameters.get("KmsKeyArn", ""))
        except ValueError as error:
            problems.append(str(error))
        # Those that the workflow's role may start, with IAM's wildcards * and ?.
        more = parameters.get("MoreStateMachineArns", "").split(",")
        if not matches(self.arn, filter(None, [parameters.get("TargetStateMachineArn", ""), *more])):
            problems.append(f"the workflow may not start {named}: add its ARN to MoreStateMachineArns")
        return problems

    def usual_times(self) -> list[float]:
        """The durations of the newest successful executions, in seconds."""
        stepfunctions = self.stack.client("stepfunctions")
        try:
            listed = stepfunctions.list_executions(
                stateMachineArn=self.arn, statusFilter="SUCCEEDED", maxResults=NEWEST
            )
        except stepfunctions.exceptions.StateMachineDoesNotExist:
            return []
        return [(each["stopDate"] - each["startDate"]).total_seconds() for each in listed["executions"]]

    def work(self, execution: str, _: float) -> ShownWork | None:
        """The child of an execution; None if it has none. Its name finds it, whenever its slot was reserved."""
        child = self._describe(execution)
        return self._shown(execution, child.status) if child else None

    def works(self, since: Mapping[str, float]) -> dict[str, ShownWork]:
        """The child of each execution that has one.

        One list, of at most MAX_PAGES pages, contains those that run; of the others, MAX_DESCRIBED are described.
        """
        stepfunctions = self.stack.client("stepfunctions")
        bound = {"PageSize": 1000, "MaxItems": 1000 * MAX_PAGES}
        pages = stepfunctions.get_paginator("list_executions").paginate(
            stateMachineArn=self.arn, statusFilter="RUNNING", PaginationConfig=bound
        )
        try:
            running = {listed["name"] for page in pages for listed in page["executions"]}
        except stepfunctions.exceptions.StateMachineDoesNotExist:
            running = set()
        rest = sorted(since.keys() - running)
        described = in_parallel(lambda name: self.work(name, 0), rest[:MAX_DESCRIBED])
        found = {name: self._shown(name, "RUNNING") for name in since.keys() & running}
        found |= {name: work for name, work in zip(rest, described, strict=False) if work is not None}
        return found | dict.fromkeys(rest[MAX_DESCRIBED:], _NOT_READ)

    def output(self, execution: str) -> dict[str, str]:
        """The output of an execution's child, without tokens."""
        child = self._describe(execution)
        return {"output": hide_tokens(child.output) if child else ""}

    def _describe(self, execution: str) -> Work | None:
        children = Children(self.stack.client("stepfunctions"))
        return children.describe(self.arn, execution, self.stack.execution_arn(execution))

    def _shown(self, execution: str, status: str) -> ShownWork:
        arn = execution_arn(self.arn, execution)
        return {"id": arn, "state": status, "link": self.stack.link_of(arn)}


def target_in(stack: StackConnection, target: str) -> GlueJobTarget | StateMachineTarget:
    """A target, to be read in the stack's account."""
    return StateMachineTarget(stack, target) if kind_of(target) is STATE_MACHINE else GlueJobTarget(stack, target)
