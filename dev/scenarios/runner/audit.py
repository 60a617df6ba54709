"""The checks of `slotkeeper audit` on the records of a run, with its own facts."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import counted
from dev.judge.grant_order import Row, wrong_order
from dev.judge.slot_item import Asked, Holder, Item, wrong_history
from slotkeeper.slots.request import process_of_execution
from slotkeeper_cli.account import Account
from slotkeeper_cli.audit.check_result import CheckResult
from slotkeeper_cli.audit.history_reader import read_history
from slotkeeper_cli.audit.work_history import AuditBounds, WorkHistory
from slotkeeper_cli.dead_letters import DeadLetterQueueName, DeadLetterQueueReader
from slotkeeper_cli.stack_connection import StackConnection, received_or_visible

from .checks import check_none
from .whole_run import RefusedMessage, Sending, WholeRun, changes_of_limits, judge_run

Change = Item | Row


class Journal:
    """Reads the versions of the items of SlotTable, and of the rows of RequestTable, from the engine's journal.

    The journal has the order of the writes, which no other record has: one write reserves a slot, and Step Functions
    lists the start of the workflow some milliseconds later.
    """

    def __init__(self, file: Path, outputs: Mapping[str, str]) -> None:
        self._file = file
        self._tables: dict[str, Callable[[Mapping[str, Any], float], Change]] = {
            outputs["SlotTableName"]: Item.read,
            outputs["RequestTableName"]: lambda raw, _: Row.read(raw),
        }
        self._offset = 0
        self._newest: dict[str, Item] = {}
        self.changes: list[Change] = []

    def read(self) -> dict[str, Item]:
        """Read the new entries, as far as their lines are whole; the newest item of every process."""
        if self._file.exists():
            with self._file.open("rb") as lines:
                lines.seek(self._offset)
                while (line := lines.readline()).endswith(b"\n"):
                    self._offset += len(line)
                    entry = json.loads(line)
                    if parse := self._tables.get(entry["table"]):
                        change = parse(entry["item"], entry["at"])
                        self.changes.append(change)
                        if isinstance(change, Item):
                            self._newest[change.process] = change
        return self._newest


def items_of(changes: Sequence[Change]) -> list[Item]:
    """The versions of the items, in the order of the writes."""
    return [each for each in changes if isinstance(each, Item)]


def read(
    aws: EmbeddedAws,
    run: WholeRun,
    sendings: Sequence[Sending],
    changes: Sequence[Change],
    bounds: AuditBounds,
    process: str | None = None,
) -> tuple[WorkHistory, WholeRun]:
    """The history of a run that has ended, of one process or of all, and the run's own facts.

    At least one message must have been sent.
    """
    stack = StackConnection("slotkeeper", local=aws.state_dir / "outputs.json")
    since = min(each.at for each in sendings)
    also = {process_of_execution(each.execution) for each in sendings}
    history = read_history(Account(stack), since, time.time(), process, also=also)
    known = replace(
        run,
        sendings=sendings,
        items=items_of(changes),
        dead_letters=[
            RefusedMessage(each.attributes.get("source_message_id", ""), each.code, each.reason)
            for each in DeadLetterQueueReader(stack, DeadLetterQueueName.REQUEST).peek(1000)
        ],
        queued=received_or_visible(stack, "RequestQueue"),
    )
    # Runs change limits without the command.
    return replace(history, acts=[*history.acts, *changes_of_limits(known.items)], bounds=bounds), known


def checks_of(history: WorkHistory, run: WholeRun, changes: Sequence[Change]) -> list[CheckResult]:
    """The audit's checks, and that no version of an item and no write breaks a guarantee."""
    return [*judge_run(history, run), *([_writes_are_right(history, changes)] if changes else [])]


def _writes_are_right(history: WorkHistory, changes: Sequence[Change]) -> CheckResult:
    adopted = {name for act in history.acts for name in act.fields.get("adopt", [])}

    def asked(name: str, _: Holder) -> Asked:
        row = history.row(name)
        return Asked((row.weight or 0) if row else None, name in adopted, row.key if row else None)

    items = items_of(changes)
    problems: dict[str, list[str]] = defaultdict(list)
    for process, breach in [*wrong_history(items, asked), *wrong_order(changes)]:
        problems[breach.guarantee].append(f"{process}: {breach.text}")
    finding = f"each of {counted(len(items), 'write')} is one that its condition allows, and grants keep the order"
    return check_none("every version of the items is right, and each write is allowed", problems, finding)
