"""The judge of the order of grants (S5): no request is granted a slot before another one in front of it.

Its history is that of both tables, in the order of the writes. Each grant was planned on a queue that was read after
the write before it that changed `grants`. So it knows each request whose row is older than that write, and the order
needs neither clocks nor the times of starts. A row is parsed without the product's code, as an item is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from dev.judge.slot_item import Breach, Item


class Row(NamedTuple):
    """A version of a request's row. `place` is empty once it has left the queue."""

    process: str
    execution: str
    place: str
    weight: int | None = None

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Row:
        """Parse a row in DynamoDB's format."""
        weight = int(raw["weight"]["N"]) if "weight" in raw else None
        return cls(raw["process_name"]["S"], raw["execution"]["S"], raw.get("place", {"S": ""})["S"], weight)


class _Queue:
    """The queue of one process, as far as the versions so far show it."""

    def __init__(self) -> None:
        self.item: Item | None = None
        self.rows: dict[str, Row] = {}
        self.known_from: dict[str, int] = {}  # the value of `grants` from which a plan knows the request

    def take_row(self, row: Row) -> None:
        if not row.place:
            self.rows.pop(row.execution, None)
        elif row.execution not in self.rows:
            self.rows[row.execution] = row
            self.known_from[row.execution] = (self.item.grants if self.item else 0) + 1

    def take_item(self, item: Item) -> Iterator[Breach]:
        before, self.item = self.item, item
        if before is None:
            return
        added = [name for name in item.holders if name not in before.holders and name in self.rows]
        for name in before.holders.keys() - item.holders.keys():  # a reservation that was put back
            self.known_from[name] = item.grants
        for name in added:
            place = self.rows[name].place
            for other in self.rows.values():
                weight = other.weight or before.default_weight
                is_known = self.known_from[other.execution] <= before.grants and other.execution not in item.holders
                if is_known and weight <= before.limit and other.place < place:
                    yield Breach("S5", f"{name} is granted a slot before {other.execution}, which is in front of it")


def wrong_order(versions: Iterable[Item | Row]) -> Iterator[tuple[str, Breach]]:
    """The breaches in the versions of items and rows, in the order of the writes, each with its process's name."""
    queues: dict[str, _Queue] = defaultdict(_Queue)
    for each in versions:
        if isinstance(each, Row):
            queues[each.process].take_row(each)
        else:
            for breach in queues[each.process].take_item(each):
                yield each.process, breach
