"""`slotkeeper process repair`: replace the malformed attributes of a process's item."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from slotkeeper.aws.dynamodb import Item, MalformedAttribute
from slotkeeper.next_step import next_step
from slotkeeper.slots.process import find_faults
from slotkeeper.slots.request import hide_fields
from slotkeeper_cli.account import Account
from slotkeeper_cli.audit_lines import Audited
from slotkeeper_cli.audit_log import audit
from slotkeeper_cli.completion import ProcessName
from slotkeeper_cli.context import current_context
from slotkeeper_cli.errors import CommandFailed, CommandRefused
from slotkeeper_cli.formatting import count, cut
from slotkeeper_cli.item_repair import Keys, Known, RepairPlan, Value, plan_repair, value_at
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.requests import HIDDEN, hide_tokens
from slotkeeper_cli.slot_control import confirmed_target
from slotkeeper_cli.unread import Search, print_not_read

# Of a holder: with it its lease can be extended.
_SECRET = ("code",)
_LONGEST_AUDITED = 2000  # characters of a value
_EXECUTION = re.compile(r"[A-Za-z0-9_-]{1,80}")  # Step Functions API Reference, StartExecution, `name`
_HINTS = 10  # newest lines of the audit log that are shown


def repair(
    process: ProcessName,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="PATH=VALUE", help="Value of a malformed attribute, such as slot_limit=5; may be repeated."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the writes.")] = False,
) -> None:
    """Show and repair the malformed attributes of a process.

    It shows each attribute, the value that repairs it, and why that value is right or safe, and writes the values after
    a question, if the attributes are still as they were read.

    A value is the attribute itself (a number that is stored as text), is known of the holder's execution or request, or
    admits no more requests and frees no slot earlier. For any other attribute, such as the limit, it shows what the
    audit log has of the process: give the value with --set. No holder is removed.
    """
    context = current_context()
    account, search, now = Account(context.stack), Search(), time.time()
    given = _given(values or [])
    item = account.control.processes.read_item(process)
    if not item:
        raise account.control.not_found(process)
    try:
        plan = plan_repair(item, _known(account, process, item), given, now)
    except ValueError as error:
        raise typer.BadParameter(f"--set {error}. Nothing was changed.") from error
    hints = list(_hints(account, search, process)) if plan.open else []
    data = _as_dict(process, item, plan) | {"hints": hints, "not_read": [each.as_dict() for each in search.not_read]}
    if not plan.faults:
        context.out.result(data, f"{process}: every attribute is valid. There is nothing to repair.")
        return
    lines = [*_lines(process, item, plan), *hints]
    if plan.open or dry_run:
        context.out.result(data, lines)
        if not context.out.as_json:
            print_not_read(context.out.console, data["not_read"])
        _refuse_open(process, plan)
        return
    for line in lines:
        context.out.note(line)
    context.confirm(f"Write {count(len(plan.changes), 'attribute')} of process {process}?")
    audit("process repair", process=process, changes=data["changes"])
    if not account.control.operations.repair(process, item, plan.repaired):
        raise CommandFailed(f"the item of process {process} changed meanwhile, so nothing was written: run this again")
    left = find_faults(account.control.processes.read_item(process))
    context.out.result(
        data | {"written": True, "valid": not left},
        [
            f"{process}: {count(len(plan.changes), 'attribute')} written; the item is "
            f"{'still malformed' if left else 'valid now'}.",
            *_next_steps(plan, process),
        ],
    )
    if left:
        raise CommandFailed(f"{_named(left)}: run {next_step('process repair', process)} again")


def _given(values: Iterable[str]) -> dict[Keys, str]:
    given = {}
    for text in values:
        is_of_key = text.startswith("key_limits.")  # a key may contain dots and equals signs
        path, equals, value = text.rpartition("=") if is_of_key else text.partition("=")
        if not equals:
            raise typer.BadParameter(f"--set must be PATH=VALUE, as in --set slot_limit=5, got {text!r}")
        given[tuple(path.split(".", 1 if is_of_key else -1))] = value
    return given


def _known(account: Account, process: str, item: Item) -> dict[str, Known]:
    """What Step Functions and RequestTable know of each malformed holder."""
    faults = (fault.keys for fault in find_faults(item))
    names = sorted({keys[1] for keys in faults if keys[0] == "holders" and len(keys) > 1})

    def read(name: str) -> Known:
        if not _EXECUTION.fullmatch(name):
            return Known()
        execution, row = account.execution(name), account.control.row_search.row(process, name)
        weight = (row.weight or _default_weight(item)) if row else None
        of_request = weight, row.key if row else None
        if execution is None:
            return Known(None, "", *of_request)
        return Known(execution.started_at, confirmed_target(account.stack, name), *of_request)

    return dict(zip(names, in_parallel(read, names), strict=True))


def _default_weight(item: Item) -> int | None:
    number = (value_at(item, ("default_weight",)) or {"N": "1"}).get("N", "")
    return int(number) if number.isdigit() else None


def _hints(account: Account, search: Search, process: str) -> Iterator[str]:
    """What states the settings of a process: the stack's parameters, and the newest lines of the audit log."""
    parameters = account.stack.parameters
    if parameters.get("ProcessName") == process:
        yield f"The stack adds it with SlotLimit {parameters['SlotLimit']}, which a command may have changed since."
    read = search.try_read("AuditLogGroup", lambda: account.audit_lines("process", process), Audited([]))
    for line in read.lines[-_HINTS:]:
        facts = {key: value for key, value in line.items() if key not in ("action", "at", "by", "stack", "process")}
        shown = cut(hide_tokens(json.dumps(facts, ensure_ascii=False)))
        yield f"The audit log: {line['at']} {line['action']} {shown}"


def _named(faults: Iterable[MalformedAttribute]) -> str:
    return "; ".join(f"{'.'.join(fault.keys)} {_expected(fault)}" for fault in faults)


def _refuse_open(process: str, plan: RepairPlan) -> None:
    if not plan.open:
        return
    paths = ["run_settings.settle_seconds" if fault.kind == "M" else ".".join(fault.keys) for fault in plan.open]
    command = next_step("process repair", process, set=[f"{path}=VALUE" for path in paths])
    raise CommandRefused(
        f"no value is known to be safe: {_named(plan.open)}. Give each of them: {command}. Nothing was changed."
    )


def _next_steps(plan: RepairPlan, process: str) -> Iterator[str]:
    written = {change.keys: change.value for change in plan.changes}
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
    if plan.changes:
        yield "Writes, each with its source:"
    for change in plan.changes:
        value = "removed" if change.value is None else _shown(change.keys, change.value)
        yield f"  {'.'.join(change.keys)}: {value} ({change.source})"


def _as_dict(process: str, item: Item, plan: RepairPlan) -> dict[str, Any]:
    def has(keys: Keys) -> dict[str, Any]:
        return {"path": list(keys), "has": _hidden(keys, value_at(item, keys))}

    return {
        "process": process,
        "faults": [has(fault.keys) | {"expected": _expected(fault)} for fault in plan.faults],
        "changes": [
            has(change.keys) | {"writes": _hidden(change.keys, change.value), "source": change.source}
            for change in plan.changes
        ],
        "open": [".".join(fault.keys) for fault in plan.open],
        "written": False,
        "valid": not plan.faults,
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
    """An attribute as DynamoDB has it, on one line."""
    return "no value" if value is None else cut(json.dumps(_hidden(keys, value), ensure_ascii=False))
