"""Check that a process can use a target: a Glue job (job_checks.py) or a state machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slotkeeper.slots.targets import NO_TARGET, check_key, check_place, check_type, is_state_machine, matches
from slotkeeper_cli.job_checks import allowed_jobs, get_job, job_problems
from slotkeeper_cli.stack_connection import StackConnection


def target_text(target: str) -> str:
    """A target with its kind: `Glue job load`, `state machine arn:...`, `leases only`."""
    if target == NO_TARGET:
        return "leases only"
    return f"{'state machine' if is_state_machine(target) else 'Glue job'} {target}"


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
    if not is_state_machine(target):
        return job_problems(target, get_job(stack, target), allowed_jobs(stack))
    machine = get_machine(stack, target)
    if machine is not None:
        check_type(target, machine)
    return machine_problems(target, machine, allowed_machines(stack), stack.parameters.get("KmsKeyArn", ""))


def get_machine(stack: StackConnection, arn: str) -> dict[str, Any] | None:
    """The state machine as Step Functions describes it (DescribeStateMachine); None if it does not exist."""
    stepfunctions = stack.client("stepfunctions")
    try:
        machine: dict[str, Any] = stepfunctions.describe_state_machine(
            stateMachineArn=arn,
            includedData="METADATA_ONLY",  # without the definition, which a key of its own may encrypt
        )
    except stepfunctions.exceptions.StateMachineDoesNotExist:
        return None
    return machine


def allowed_machines(stack: StackConnection) -> set[str]:
    """The ARNs of the state machines that the workflow's role may start, with IAM's wildcards * and ?."""
    named = [stack.parameters.get("TargetStateMachineArn", "")]
    return {arn for arn in [*named, *stack.parameters.get("MoreStateMachineArns", "").split(",")] if arn}


def machine_problems(arn: str, machine: dict[str, Any] | None, allowed: Iterable[str], key: str) -> list[str]:
    """Why requests would fail with this state machine. Each text ends with what to do.

    Args:
        key: the ARN of the stack's key; empty if it has none.
    """
    if machine is None:
        return [f"state machine {arn} does not exist: create it first"]
    problems = []
    if machine.get("type", "STANDARD") != "STANDARD":
        problems.append(f"state machine {arn} is of type {machine['type']}: it must be STANDARD")
    if machine.get("status") == "DELETING":
        problems.append(f"state machine {arn} is being deleted: create it again under another name")
    try:
        check_key(arn, machine, key)
    except ValueError as error:
        problems.append(str(error))
    if not matches(arn, allowed):
        problems.append(f"the workflow may not start state machine {arn}: add its ARN to MoreStateMachineArns")
    return problems
