"""Targets of processes, for the work in their slots. A Glue job, by its name, or a state machine, by its ARN.

A state machine is a Standard one of the stack's account and Region. Step Functions knows its executions by name for 90
days, so that a child execution, which has the name of its workflow execution, is found without a list. Executions of
Express workflows cannot be described (Step Functions guide, "Choosing workflow type in Step Functions").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Glue refuses a timeout that is not less than seven days (Glue Web API, StartJobRun, `Timeout`).
MAX_TIMEOUT_MINUTES = 10_079
MAX_SETTLE_SECONDS = 86_400

# The characters of a name: Step Functions API Reference, CreateStateMachine, `name`.
_STATE_MACHINE = re.compile(
    r"arn:(?P<partition>[a-z-]+):states:(?P<region>[a-z0-9-]+):(?P<account>[0-9]{12})"
    r":stateMachine:(?P<name>[^\s<>{}\[\]?*\"#%\\^|~`$&,;:/]{1,80})(?P<qualifier>:.*)?"
)
_EXPECTED = "a Glue job's name, or arn:aws:states:REGION:ACCOUNT:stateMachine:NAME"


def is_state_machine(target: str) -> bool:
    """Whether the target is a state machine. All other targets are Glue jobs."""
    return target.startswith("arn:")


@dataclass(frozen=True)
class TargetKind:
    """A kind of target, and of the work in the slots of its process.

    Attributes:
        noun: the target, in a sentence.
        work_noun: what it runs, in a sentence.
        work_key: the field under which JSON shows what it runs.
        is_final: whether no other work of a holder can start after the end of its work.
    """

    noun: str
    work_noun: str
    work_key: str
    is_final: bool


GLUE_JOB = TargetKind("Glue job", "Glue run", "glue_run", is_final=False)
STATE_MACHINE = TargetKind("state machine", "child execution", "child", is_final=True)


def kind_of(target: str) -> TargetKind:
    """The kind of a target. One of a process for leases alone counts as a Glue job."""
    return STATE_MACHINE if is_state_machine(target) else GLUE_JOB


def execution_arn(state_machine_arn: str, name: str) -> str:
    """The ARN of a state machine's execution."""
    return f"{state_machine_arn.replace(':stateMachine:', ':execution:', 1)}:{name}"


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name or an ARN matches one of the patterns, which may have IAM's wildcards * and ?."""
    expressions = (re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".") for pattern in patterns)
    return any(re.fullmatch(expression, name) for expression in expressions)


def check_target(target: str) -> None:
    """Raise ValueError if the target is not a Glue job's name or the unqualified ARN of a state machine.

    Whether the state machine exists and is of type Standard is known only to Step Functions.
    """
    # In bytes: Glue API reference, "Jobs", CreateJob, `Name`. Each holder contains its target.
    if not 1 <= len(target.encode()) <= 255:
        raise ValueError(f"target must be 1 to 255 bytes of UTF-8, got {target!r}")
    if not is_state_machine(target):
        return
    if ":states:" not in target:
        raise ValueError(f"target must be {_EXPECTED}, got the ARN of another service: {target!r}")
    if ":execution:" in target or ":express:" in target:
        raise ValueError(f"target must be {_EXPECTED}, got the ARN of an execution: {target!r}")
    found = _STATE_MACHINE.fullmatch(target)
    if not found:
        raise ValueError(f"target must be {_EXPECTED}, got {target!r}")
    if found["qualifier"]:
        # A list of redriven executions by such an ARN would miss those of other versions.
        raise ValueError(
            f"target must be the ARN of a state machine without version or alias, got {target!r}. "
            f"Use {target.removesuffix(found['qualifier'])}"
        )


def check_place(target: str, account: str, region: str) -> None:
    """Raise ValueError if a state machine is in another account or Region than the stack."""
    found = _STATE_MACHINE.fullmatch(target)
    if found and (found["account"], found["region"]) != (account, region):
        raise ValueError(
            f"target must be in the stack's account {account} and Region {region}, got {target!r}: "
            "a workflow starts and stops the executions of its own account and Region only"
        )


def check_type(target: str, description: Mapping[str, object]) -> None:
    """Raise ValueError if a state machine, as DescribeStateMachine returned it, is not of type Standard."""
    if (kind := description["type"]) != "STANDARD":
        raise ValueError(
            f"target {target} is of type {kind}; it must be STANDARD, because executions of Express workflows cannot "
            "be described or stopped"
        )


def check_key(target: str, description: Mapping[str, Any], key: str) -> None:
    """Raise ValueError if a state machine, as DescribeStateMachine returned it, is encrypted with another key.

    Its executions can then be neither started nor described without permissions on that key (Step Functions guide,
    "Data at rest encryption").

    Args:
        key: the ARN of the stack's key, which its roles may use; empty if it has none.
    """
    own = description.get("encryptionConfiguration", {}).get("kmsKeyId", "")
    if own and own not in (key, key.rpartition("/")[2]):
        raise ValueError(
            f"target {target} is encrypted with {own}, which the stack's roles may not use: encrypt it with "
            f"{key or 'the key of Step Functions'}, or let that key's policy allow the roles kms:Decrypt and "
            "kms:GenerateDataKey"
        )


def check_timeout(minutes: int | None) -> None:
    """Raise ValueError if a process's timeout is not a valid number of minutes. None: the stack's parameter."""
    if minutes is not None and not _is_whole(minutes, 1, MAX_TIMEOUT_MINUTES):
        raise ValueError(f"timeout must be a whole number of minutes from 1 to {MAX_TIMEOUT_MINUTES}, got {minutes!r}")


def check_settle_seconds(seconds: int, target: str) -> None:
    """Raise ValueError if a settle time is not a valid number of seconds, or is for a target that is a Glue job."""
    if not _is_whole(seconds, 0, MAX_SETTLE_SECONDS):
        raise ValueError(
            f"settle time must be a whole number of seconds from 0 to {MAX_SETTLE_SECONDS}, got {seconds!r}"
        )
    if seconds and not is_state_machine(target):
        raise ValueError(
            f"settle time is for state machines, got {seconds} s for Glue job {target!r}: "
            "a Glue run that has stopped does no further work"
        )


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
