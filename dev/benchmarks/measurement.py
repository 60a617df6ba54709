"""What one run of a design used: the times of its work, the calls of DynamoDB and their write units."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dev.emulator.aws import EmbeddedAws
from dev.emulator.faults import Faults
from dev.scenarios.runner.scenario import CannotContinue
from slotkeeper_cli.audit.intervals import percentile, weighted_steps

from .designs import Design, Load, Span

KB = 1024
QUIET = 2.0  # seconds without a call, after which a run has no more of them
READS = ("GetItem", "Query", "Scan", "BatchGetItem", "TransactGetItems")
WRITES = ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems")
_DYNAMODB = "arn:aws:states:::dynamodb:"

Item = Mapping[str, Any]  # in DynamoDB's format


@dataclass(frozen=True)
class Figures:
    """Of one run. `hand_offs`: seconds from the end of a request's work to the start of the next one's."""

    starts_a_second: float
    hand_offs: Sequence[float]
    calls: float
    write_units: float

    def as_dict(self) -> dict[str, float]:
        """The figures by which the designs are compared; calls and units are those of a request."""
        return {
            "starts a second": self.starts_a_second,
            "hand-off, median": median(self.hand_offs),
            "hand-off, p99": percentile(self.hand_offs, 0.99) or 0.0,
            "DynamoDB calls": self.calls,
            "write units": self.write_units,
        }


class Meter:
    """Counts the calls of DynamoDB: a rule of the engine for each operation and each task delays it by no time."""

    def __init__(self, aws: EmbeddedAws, machines: Iterable[str]) -> None:
        self._aws, self._faults = aws, Faults(aws.state_dir)
        self._journal = aws.state_dir / "journal.jsonl"
        self._rules: dict[str, bool] = {}  # whether it counts writes
        tasks = [task for arn in machines for task in tasks_of(self._definition(arn))]
        for name, is_write in {**dict.fromkeys(READS, False), **dict.fromkeys(WRITES, True), **dict(tasks)}.items():
            self._rules[self._faults.add(name, "delay", seconds=0.0, times=0)] = is_write

    def _definition(self, arn: str) -> dict[str, Any]:
        described = self._aws.client("stepfunctions").describe_state_machine(stateMachineArn=arn)
        definition: dict[str, Any] = json.loads(described["definition"])
        return definition

    def measure(self, design: Design, label: str, load: Load) -> Figures:
        """Run the design once, alone. Raises CannotContinue if it has exceeded its limit."""
        design.prepare(label, load)
        calls, writes, changes = *self._calls(), len(self._changes())
        spans = design.run()
        self._settle()
        if (most := max(at_work for _, at_work in weighted_steps((span, 1) for span in spans))) > load.slots:
            raise CannotContinue(f"{design.title}: {most} requests worked at the same time in {load.slots} slots")
        all_calls, all_writes = self._calls()
        made, written = all_calls - calls, all_writes - writes
        listed = self._changes()
        units = write_units(listed, changes, self._described(listed), written)
        return Figures(starts_a_second(spans), hand_offs(spans, load.slots), made / len(spans), units / len(spans))

    def _calls(self) -> tuple[int, int]:
        """All calls until now, and the writes of them."""
        counts = {rule: self._faults.fired(rule) for rule in self._rules}
        return sum(counts.values()), sum(count for rule, count in counts.items() if self._rules[rule])

    def _settle(self) -> None:
        """Return when no call was made for a time: the ends of requests are published after their work."""
        last, since = self._calls(), time.monotonic()
        while time.monotonic() - since < QUIET:
            time.sleep(0.2)
            if (now := self._calls()) != last:
                last, since = now, time.monotonic()

    def _changes(self) -> list[tuple[str, Item]]:
        entries = map(json.loads, self._journal.read_text().splitlines()) if self._journal.exists() else ()
        return [(entry["table"], entry["item"]) for entry in entries]

    def _described(self, changes: Iterable[tuple[str, Item]]) -> dict[str, dict[str, Any]]:
        """The description of each table of these changes."""
        describe = self._aws.client("dynamodb").describe_table
        return {name: describe(TableName=name)["Table"] for name in {table for table, _ in changes}}


def tasks_of(definition: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """The tasks of a state machine that call DynamoDB, and whether each is a write."""
    for name, state in definition["States"].items():
        resource = state.get("Resource", "")
        if resource.startswith(_DYNAMODB):
            yield name, not resource.endswith("getItem")


def starts_a_second(spans: Sequence[Span]) -> float:
    """Between the first start and the last."""
    starts = [each.began for each in spans]
    return (len(starts) - 1) / (max(starts) - min(starts))


def hand_offs(spans: Sequence[Span], slots: int) -> list[float]:
    """From each end of work to the next start, in seconds. The first starts take slots that were free."""
    waited, ends = sorted(each.began for each in spans)[slots:], sorted(each.ended for each in spans)
    return [max(0.0, start - end) for start, end in zip(waited, ends, strict=False)]


def write_units(
    changes: Sequence[tuple[str, Item]], first: int, tables: Mapping[str, Mapping[str, Any]], writes: int
) -> float:
    """The units of the changes from `first` on, of so many writes. One that changed nothing, or was refused, takes one.

    DynamoDB guide, "DynamoDB read and write operations": the KB of the larger of the item before and after, rounded up;
    "Using global secondary indexes", write operations: an entry that appears, changes or disappears is a write of it,
    and one whose key changes two.
    """
    known: dict[tuple[str, ...], Item] = {}
    units = 0
    for number, (table, item) in enumerate(changes):
        key = table, *(str(item[part["AttributeName"]]) for part in tables[table]["KeySchema"])
        before, known[key] = known.get(key, {}), item
        if number >= first:
            units += max(_kb(before), _kb(item))
            kinds = ("LocalSecondaryIndexes", "GlobalSecondaryIndexes")
            for index in (each for kind in kinds for each in tables[table].get(kind, [])):
                units += _index_units(index, tables[table]["KeySchema"], before, item)
    return units + max(0, writes - (len(changes) - first))


def _index_units(index: Mapping[str, Any], table_key: Sequence[Mapping[str, str]], before: Item, after: Item) -> int:
    key = [part["AttributeName"] for part in index["KeySchema"]]
    kept = {*key, *(part["AttributeName"] for part in table_key), *index["Projection"].get("NonKeyAttributes", [])}
    old, new = (
        {name: value for name, value in item.items() if name in kept} if all(name in item for name in key) else {}
        for item in (before, after)
    )
    if old == new:
        return 0
    if old and new and all(old[name] == new[name] for name in key):
        return max(_kb(old), _kb(new))
    return sum(_kb(entry) for entry in (old, new) if entry)


def _kb(item: Item) -> int:
    """The KB of an item, rounded up; nearly, since numbers are stored shorter than their text."""
    return -(-sum(len(name) + _bytes(value) for name, value in item.items()) // KB)


def _bytes(value: Any) -> int:
    """The size of a value ("DynamoDB item sizes and formats"): of a map or list 3 bytes, and one for each entry."""
    ((kind, content),) = value.items()
    if kind == "M":
        return 3 + sum(1 + len(name) + _bytes(each) for name, each in content.items())
    if kind == "L":
        return 3 + sum(1 + _bytes(each) for each in content)
    return len(str(content).encode()) if kind in ("S", "N", "B") else 1
