"""What runs in the slots of holders: the Glue run of each, or its child execution. A lease's code does not show."""

from __future__ import annotations

from collections.abc import Iterable

from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.targets import execution_arn, is_state_machine
from slotkeeper.slots.work import Children
from slotkeeper_cli.glue_runs import runs_by_execution
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.stack_connection import StackConnection

Work = dict[str, str]  # its id and state; of a child execution also its link


def executions_of(process: Process) -> dict[str, Holder]:
    """The holders of a process that are executions: all but its leases."""
    return {name: holder for name, holder in process.holders.items() if not holder.is_lease}


def target_of(process: Process, holder: Holder) -> str:
    """What a holder runs. A reservation has no target yet: its workflow copies the process's own."""
    return holder.target or process.target


def work_key(target: str) -> str:
    """The key under which JSON shows what a target runs."""
    return "child" if is_state_machine(target) else "glue_run"


def work_noun(target: str) -> str:
    """What a target runs, in a sentence."""
    return "child execution" if is_state_machine(target) else "Glue run"


def work_of(stack: StackConnection, target: str, execution: str, since: float) -> Work | None:
    """What a holder runs; None if nothing was started."""
    if not is_state_machine(target):
        return runs_by_execution(stack, target, since).get(execution)
    child = Children(stack.client("stepfunctions")).describe(target, execution, stack.execution_arn(execution))
    return _child(stack, target, execution, child.status) if child and child.is_ours else None


def work_of_holders(stack: StackConnection, processes: Iterable[Process]) -> dict[str, Work]:
    """What each holder of these processes runs, by execution."""
    since: dict[str, dict[str, int]] = {}
    for process in processes:
        for name, holder in executions_of(process).items():
            since.setdefault(target_of(process, holder), {})[name] = holder.since
    found: dict[str, Work] = {}
    for target, holders in since.items():
        if is_state_machine(target):
            found |= _children(stack, target, sorted(holders))
        else:
            found |= runs_by_execution(stack, target, min(holders.values()))
    return found


def _children(stack: StackConnection, target: str, names: list[str]) -> dict[str, Work]:
    """The children of these names. One list contains those that run; the others are described one by one."""
    stepfunctions = stack.client("stepfunctions")
    try:
        pages = stepfunctions.get_paginator("list_executions").paginate(stateMachineArn=target, statusFilter="RUNNING")
        running = {listed["name"] for page in pages for listed in page["executions"]}
    except stepfunctions.exceptions.StateMachineDoesNotExist:
        running = set()
    rest = [name for name in names if name not in running]
    described = in_parallel(lambda name: work_of(stack, target, name, 0), rest)
    found = {name: _child(stack, target, name, "RUNNING") for name in names if name in running}
    return found | {name: work for name, work in zip(rest, described, strict=True) if work is not None}


def _child(stack: StackConnection, target: str, name: str, status: str) -> Work:
    arn = execution_arn(target, name)
    return {"id": arn, "state": status, "link": stack.link_of(arn)}
