"""Read the facts about a process that are not in its item: audit lines, the stack's parameters, its executions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from botocore.exceptions import ClientError

from slotkeeper.aws.dynamodb import Item
from slotkeeper.slots.process import KEEP_SECONDS, find_faults
from slotkeeper.slots.run_report import is_denied
from slotkeeper_cli.audit_log import read_audit
from slotkeeper_cli.formatting import seconds
from slotkeeper_cli.item_repair import SETTINGS, Keys, Sources, Stated
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.slotless_executions import confirmed_target
from slotkeeper_cli.stack_connection import StackConnection

_EXECUTION = re.compile(r"[A-Za-z0-9_-]{1,80}")  # Step Functions API Reference, StartExecution, `name`
_TIMEOUT, _SETTLE = ("run_settings", "timeout_minutes"), ("run_settings", "settle_seconds")
# The fields of the audit line of `process add`. Their values are those of the attribute, or its default.
_ADDED: Mapping[str, tuple[Keys, Any]] = {
    "limit": (("slot_limit",), None),
    "target": (("target",), None),
    "default_weight": (("default_weight",), 1),
    "turn_seconds": (("turn_seconds",), None),
    "timeout_minutes": (_TIMEOUT, None),
    "settle_seconds": (_SETTLE, 0),
}
_CHANGED = {"process set-limit": ("slot_limit",), "process set-turn": ("turn_seconds",)}


def read_sources(stack: StackConnection, control: SlotControl, name: str, item: Item, now: float) -> Sources:
    """Read the sources that the malformed attributes of an item need. `now` is in seconds since the epoch."""
    faults = [fault.keys for fault in find_faults(item)]
    holders = sorted({keys[1] for keys in faults if keys[0] == "holders" and len(keys) > 1})
    named = [holder for holder in holders if _EXECUTION.fullmatch(holder)]
    executions = dict(zip(named, in_parallel(control.workflow.describe, named), strict=True))
    found = [holder for holder, execution in executions.items() if execution is not None]
    targets = dict(zip(found, in_parallel(lambda each: confirmed_target(control.workflow, each), found), strict=True))
    needs_log = any(keys[0] in SETTINGS or keys == ("cancelled",) for keys in faults)
    lines = _audit_lines(stack, name) if needs_log else []
    return Sources(
        stack.outputs["RequestQueueUrl"],
        executions,
        targets,
        settings_in(lines or [], own_settings(stack, name, lines is not None)),
        None if lines is None else cancelled_in(lines, now),
    )


def _audit_lines(stack: StackConnection, name: str) -> list[Mapping[str, Any]] | None:
    """The audit lines of a process in order; None if the operator may not read them, or they are too many."""
    try:
        read = read_audit(stack, "process", name)
    except ClientError as error:
        if not is_denied(error):
            raise
        return None
    return read.lines if read.is_complete else None


def own_settings(stack: StackConnection, name: str, has_log: bool) -> dict[Keys, Stated]:
    """The settings with which the stack has added a process, if it is the one in the stack's parameters.

    A deployment changes only the target of an existing process. The others may have been changed by commands, so they
    are stated only together with the audit log.
    """
    parameters = stack.parameters
    if parameters.get("ProcessName") != name:
        return {}
    target = parameters.get("TargetStateMachineArn") or stack.outputs["GlueJobName"]
    settings: dict[Keys, Stated] = {("target",): Stated({"S": target}, "the stack's target")}
    if has_log:
        text = "the stack's parameter SlotLimit; the audit log has no later change"
        settings[("slot_limit",)] = Stated({"N": parameters["SlotLimit"]}, text)
        text = "the stack adds its process without it; the audit log has no later change"
        absent: tuple[Keys, ...] = (("default_weight",), ("turn_seconds",), _TIMEOUT, _SETTLE)
        settings |= dict.fromkeys(absent, Stated(None, text)) | {("run_settings",): Stated({"M": {}}, text)}
    return settings


def settings_in(lines: Iterable[Mapping[str, Any]], own: Mapping[Keys, Stated]) -> dict[Keys, Stated]:
    """The settings that the audit lines of a process state, or else those of the stack.

    Args:
        lines: in order, of one process.
    """
    settings = dict(own)
    for line in lines:
        action, source = line["action"], f"the audit log, {line['action']} at {line['at']} by {line['by']}"
        if action == "process remove":
            settings.clear()
        elif action == "process add":
            for field, (keys, default) in _ADDED.items():
                value = line.get(field)
                settings[keys] = Stated(None if value == default else _attribute(value), source)
            of_run = {keys[1]: settings[keys].value for keys in (_TIMEOUT, _SETTLE)}
            settings[("run_settings",)] = Stated({"M": {key: value for key, value in of_run.items() if value}}, source)
        elif action in _CHANGED:
            settings[_CHANGED[action]] = Stated(_attribute(line["after"]), source)
        elif action == "process repair":
            stated = {tuple(change["path"]): change["writes"] for change in line["changes"]}
            settings |= {keys: Stated(value, source) for keys, value in stated.items() if keys[0] in SETTINGS}
    return settings


def _attribute(value: Any) -> dict[str, Any]:
    return {"N": str(value)} if isinstance(value, int) else {"S": value}


def cancelled_in(lines: Iterable[Mapping[str, Any]], now: float) -> dict[str, float]:
    """The requests that were cancelled and may still be queued: execution -> seconds since the epoch.

    A line is written before the change, so one may have started instead. It does not start a second time either.
    """
    cancelled: dict[str, float] = {}
    for line in lines:
        if line["action"] == "process remove":
            cancelled.clear()
        elif line["action"] == "request cancel" and not line.get("stop"):
            cancelled[line["execution"]] = seconds(line["at"])
    return {execution: at for execution, at in cancelled.items() if at + KEEP_SECONDS > now}
