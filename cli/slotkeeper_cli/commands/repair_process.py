"""`slotkeeper process repair`: replace the malformed attributes of a process's item."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import typer
from botocore.exceptions import ClientError

from slotkeeper.aws.dynamodb import Item, MalformedAttribute
from slotkeeper.next_step import next_step
from slotkeeper.slots.process import find_faults
from slotkeeper.slots.request import hide_fields
from slotkeeper.slots.run_report import is_denied
from slotkeeper_cli.audit_log import audit, read_audit
from slotkeeper_cli.completion import ProcessName
from slotkeeper_cli.context import current_context
from slotkeeper_cli.errors import CommandFailed, CommandRefused
from slotkeeper_cli.formatting import count, one_line
from slotkeeper_cli.item_repair import SETTINGS, Keys, RepairPlan, Sources, Stated, Value, plan_repair, value_at
from slotkeeper_cli.rates import parse_rate
from slotkeeper_cli.requests import HIDDEN, hide_tokens
from slotkeeper_cli.slot_control import SlotControl, confirmed_target
from slotkeeper_cli.stack_connection import StackConnection, in_parallel

# Of a holder: with it its lease can be extended.
_SECRET = ("code",)
_LONGEST_AUDITED = 2000  # characters of a value
_EXECUTION = re.compile(r"[A-Za-z0-9_-]{1,80}")  # Step Functions API Reference, StartExecution, `name`
_TIMEOUT, _SETTLE = ("run_settings", "timeout_minutes"), ("run_settings", "settle_seconds")
# The fields of the audit line of `process add`. Their values are those of the attribute, or its default.
_ADDED: Mapping[str, tuple[Keys, Any]] = {
    "limit": (("slot_limit",), None),
    "target": (("target",), None),
    "default_weight": (("default_weight",), 1),
    "timeout_minutes": (_TIMEOUT, None),
    "settle_seconds": (_SETTLE, 0),
}
_CHANGED = {"process set-limit": ("slot_limit",)}


def repair(
    process: ProcessName,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Value of a malformed attribute for which the command knows no source, such as slot_limit=5; may be "
            "repeated.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the writes.")] = False,
) -> None:
    """Show and repair the malformed attributes of a process.

    It shows each attribute with the value that repairs it and its source, and writes the values after a question.

    Sources are the value itself (a number that is stored as text), the other attributes, the executions and rows of
    holders, the audit log and the stack's parameters. No holder is removed. slots_in_use becomes the sum of the
    holders' weights.
    """
    context = current_context()
    control, now = SlotControl(context.stack), time.time()
    given = _given(values or [])
    item = control.processes.read_item(process)
    if not item:
        raise control.not_found(process)
    if not find_faults(item):
        data = {"process": process, "faults": [], "changes": [], "open": [], "written": False, "valid": True}
        context.out.result(data, f"{process}: every attribute is valid. There is nothing to repair.")
        return
    try:
        sources = read_sources(context.stack, control, process, item)
        plan = plan_repair(item, sources, given, now)
    except ValueError as error:
        raise typer.BadParameter(f"--set {error}. Nothing was changed.") from error
    data = _as_dict(process, item, plan)
    if plan.open or dry_run:
        context.out.result(data, list(_lines(process, item, plan)))
        _refuse_open(process, plan, has_log=sources.has_log)
        return
    for line in _lines(process, item, plan):
        context.out.note(line)
    context.confirm(f"Write {count(len(plan.choices), 'attribute')} of process {process}?")
    audit("process repair", process=process, changes=data["changes"])
    if not control.operations.repair(process, item, plan.repaired):
        raise CommandFailed(f"the item of process {process} changed meanwhile, so nothing was written: run this again")
    left = find_faults(control.processes.read_item(process))
    state = "is still malformed" if left else "is valid now"
    context.out.result(
        data | {"written": True, "valid": not left},
        [
            f"{process}: {count(len(plan.choices), 'attribute')} written; the item {state}.",
            *_next_steps(plan, process),
        ],
    )
    if left:
        raise CommandFailed(f"{_named(left)}: run {next_step('process repair', process)} again")


def _given(values: Iterable[str]) -> dict[Keys, str]:
    given = {}
    for text in values:
        path, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"--set must be PATH=VALUE, as in --set slot_limit=5, got {text!r}")
        given[tuple(path.split("."))] = value
    return given


def _named(faults: Iterable[MalformedAttribute]) -> str:
    return "; ".join(f"{'.'.join(fault.keys)} {_expected(fault)}" for fault in faults)


def _refuse_open(process: str, plan: RepairPlan, has_log: bool) -> None:
    if not plan.open:
        return
    options: list[object] = [f"{'.'.join(fault.keys)}=VALUE" for fault in plan.open if fault.kind != "M"]
    give = f"Give each of them: {next_step('process repair', process, set=options)}. " * bool(options)
    log = "" if has_log else " The audit log, another source, could not be read: see docs/permissions.md."
    raise CommandRefused(f"no source states a safe value: {_named(plan.open)}. {give}Nothing was changed.{log}")


def _next_steps(plan: RepairPlan, process: str) -> Iterator[str]:
    written = {choice.keys: choice.value for choice in plan.choices}
    if ("holders",) in written:
        yield (
            "Next: slotkeeper stack reconcile; slotkeeper doctor --only unheld-runs; wait for the longest lease that "
            f"your code takes, since its leases are not known; then {next_step('process resume', process)}."
        )
    elif written.get(("paused",)) == {"BOOL": True}:
        yield f"It is paused. When it is to admit requests: {next_step('process resume', process)}"


def _lines(process: str, item: Item, plan: RepairPlan) -> Iterator[str]:
    """Each malformed attribute, its value and the expected one; then each write, and its source."""
    yield f"{process}: {count(len(plan.faults), 'malformed attribute')}."
    for fault in plan.faults:
        yield f"  {'.'.join(fault.keys)} {_expected(fault)}, has {_shown(fault.keys, value_at(item, fault.keys))}"
    if plan.choices:
        yield "Writes, each with its source:"
    for choice in plan.choices:
        value = _shown(choice.keys, choice.value) if choice.value else "removed"
        yield f"  {'.'.join(choice.keys)}: {value} ({choice.source})"
    if plan.is_partial:
        yield "One write does not replace all of them: run this again for the rest."


def _as_dict(process: str, item: Item, plan: RepairPlan) -> dict[str, Any]:
    def has(keys: Keys) -> Any:
        return _hidden(keys, value_at(item, keys))

    return {
        "process": process,
        "faults": [
            {"path": list(fault.keys), "has": has(fault.keys), "expected": _expected(fault)} for fault in plan.faults
        ],
        "changes": [
            {
                "path": list(choice.keys),
                "has": has(choice.keys),
                "writes": _hidden(choice.keys, choice.value),
                "source": choice.source,
            }
            for choice in plan.choices
        ],
        "open": [".".join(fault.keys) for fault in plan.open],
        "written": False,
        "valid": False,
    }


def _expected(fault: MalformedAttribute) -> str:
    """`must be of DynamoDB type N`: the problem without the value, which may be a token."""
    return fault.problem.partition(", got")[0]


def _hidden(keys: Keys, value: Value | None) -> Any:
    """An attribute in DynamoDB's format without secrets; a long one as a text, cut."""
    if value is None:
        return None
    shown = hide_fields(dict(zip(keys[-1:], [value], strict=True)), _SECRET, HIDDEN)
    text = hide_tokens(json.dumps(shown, ensure_ascii=False))
    if len(text) > _LONGEST_AUDITED:
        return f"{text[:_LONGEST_AUDITED]}..."
    return json.loads(text)[keys[-1]]


def _shown(keys: Keys, value: Value | None) -> str:
    """An attribute as one line of text: `the text "5"`, `the number 5`."""
    match _hidden(keys, value):
        case None:
            return "no value"
        case {"N": str(number)}:
            return f"the number {number}"
        case {"S": str(text)}:
            return f"the text {one_line(json.dumps(text, ensure_ascii=False))}"
        case {"BOOL": bool(flag)}:
            return str(flag).lower()
        case other:
            return one_line(json.dumps(_plain(other), ensure_ascii=False))


def _plain(value: Any) -> Any:
    """An attribute without DynamoDB's types."""
    match value:
        case {"M": dict(entries)}:
            return {name: _plain(each) for name, each in entries.items()}
        case {"L": list(entries)}:
            return [_plain(each) for each in entries]
        case {"N": str(number)} if number.isdigit():
            return int(number)
        case {"S": plain} | {"BOOL": plain}:
            return plain
    return value


def read_sources(stack: StackConnection, control: SlotControl, name: str, item: Item) -> Sources:
    """Read the sources that the malformed attributes of an item need."""
    faults = [fault.keys for fault in find_faults(item)]
    holders = sorted({keys[1] for keys in faults if keys[0] == "holders" and len(keys) > 1})
    named = [holder for holder in holders if _EXECUTION.fullmatch(holder)]
    executions = dict(zip(named, in_parallel(control.workflow.describe, named), strict=True))
    found = [holder for holder, execution in executions.items() if execution is not None]
    targets = dict(zip(found, in_parallel(lambda each: confirmed_target(stack, each), found), strict=True))
    rows = in_parallel(lambda each: control.row_search.attempt(name, each).rows, named)
    weights = {row.execution: row.weight for of in rows for row in of if row.weight}
    needs_log = any(keys[0] in SETTINGS for keys in faults)
    lines = _audit_lines(stack, name) if needs_log else []
    settings = settings_in(lines or [], own_settings(stack, name, lines is not None))
    return Sources(executions, targets, weights, settings, has_log=lines is not None)


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
        absent: tuple[Keys, ...] = (("default_weight",), ("rate",), _TIMEOUT, _SETTLE)
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
            settings[("rate",)] = Stated(_rate(line.get("rate"), line), source)
        elif action == "process set-rate":
            settings[("rate",)] = Stated(_rate(line["after"], line), source)
        elif action in _CHANGED:
            settings[_CHANGED[action]] = Stated(_attribute(line["after"]), source)
        elif action == "process repair":
            stated = {tuple(change["path"]): change["writes"] for change in line["changes"]}
            settings |= {keys: Stated(value, source) for keys, value in stated.items() if keys[0] in SETTINGS}
    return settings


def _rate(text: str | None, line: Mapping[str, Any]) -> dict[str, Any] | None:
    return parse_rate(text, line["burst"]).item if text else None


def _attribute(value: Any) -> dict[str, Any]:
    return {"N": str(value)} if isinstance(value, int) else {"S": value}
