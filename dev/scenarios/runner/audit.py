"""What a run has left, judged as `slotkeeper audit` does: AWS's records, with what the run knows beyond them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import counted
from dev.judge.slot_item import Asked, Holder, Item, wrong_history
from slotkeeper_cli.audit import judge
from slotkeeper_cli.audit.history_checks import CheckResult
from slotkeeper_cli.audit.history_reader import MAX_DESCRIBED, Window, read_history
from slotkeeper_cli.audit.work_history import AuditBounds, ItemVersion, Sending, WholeRun, WorkHistory
from slotkeeper_cli.stack_connection import StackConnection

from .checks import check_none


def read(
    aws: EmbeddedAws, sent: Sequence[Sending], run: WholeRun, bounds: AuditBounds, process: str | None = None
) -> WorkHistory:
    """The history of a run that has ended, of one process or of all. At least one message must have been sent."""
    stack = StackConnection("slotkeeper", local=aws.state_dir / "outputs.json")
    history = read_history(stack, Window(min(each.at for each in sent), time.time()), process, MAX_DESCRIBED)
    return with_facts(history, sent, run, bounds)


def with_facts(history: WorkHistory, sent: Sequence[Sending], run: WholeRun, bounds: AuditBounds) -> WorkHistory:
    """The history with what the run knows. Further messages are those of requests that a workflow has returned."""
    known = {each.execution for each in sent}
    returned = [each for each in history.sendings if each.sequence is None and each.execution not in known]
    return replace(history, sendings=[*sent, *returned], run=run, bounds=bounds)


def versions(items: Sequence[Item]) -> dict[str, list[ItemVersion]]:
    """The versions of each process's item."""
    found: dict[str, list[ItemVersion]] = defaultdict(list)
    for item in items:
        weights = {name: holder.weight for name, holder in item.holders.items()}
        confirmed = frozenset(name for name, holder in item.holders.items() if holder.state == "RUNNING")
        found[item.process].append(ItemVersion(item.at, 0 if item.paused else item.limit, weights, confirmed))
    return found


def checks_of(history: WorkHistory, items: Sequence[Item]) -> list[CheckResult]:
    """The audit's checks, and that no version of an item and no write breaks a guarantee."""
    return [*judge(history), *([_items_are_right(history, items)] if items else [])]


def _items_are_right(history: WorkHistory, items: Sequence[Item]) -> CheckResult:
    adopted = {name for act in history.acts for name in act.fields.get("adopt", [])}

    def asked(name: str, _: Holder) -> Asked | None:
        attempt = history.by_execution.get(name)
        if name not in adopted and not (attempt and attempt.priority):
            return None
        return Asked(attempt.priority if attempt else None, adopted=name in adopted)

    problems: dict[str, list[str]] = defaultdict(list)
    for process, breach in wrong_history(items, asked):
        problems[breach.guarantee].append(f"{process}: {breach.text}")
    finding = f"each of {counted(len(items), 'write')} is one that its condition allows"
    return check_none("every version of the items is right, and each write is allowed", problems, finding)
