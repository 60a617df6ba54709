"""The judge of the order of grants (S5): no request is granted a slot before another one whose turn was first.

Its history is that of both tables, in the order of the writes. Each grant was planned on a queue that was read after
the write before it that changed `grants`. So it knows each request whose row is older than that write, and the order
needs neither clocks nor the times of starts. Of a newer one the plan may know, which can only keep back its key.

The requests of a key start in the order of their places, and the keys of a priority in turns. Rows, places and turns
are read and decided without the product's code.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

    @property
    def rank(self) -> str:
        return self.place.partition("#")[0]

    @property
    def key(self) -> str:
        """Empty for none: its place has the time directly behind the rank."""
        key, tab, _ = self.place.partition("#/")[2].partition("\t")
        return key if tab else ""


class _Queue:
    """The queue of one process, as far as the versions so far show it."""

    def __init__(self) -> None:
        self.item: Item | None = None
        # By each key when `grants` last changed. A plan may not know what was released after that.
        self.used: Counter[str] = Counter()
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
            self.used = item.held_by_key
            return
        added = {name for name, each in item.holders.items() if name not in before.holders and each.state == "RESERVED"}
        if added and added <= self.rows.keys():
            yield from self._wrong_grant(before, item, [self.rows[name] for name in added])
        if item.grants != before.grants:
            self.used = item.held_by_key

    def _wrong_grant(self, before: Item, item: Item, added: Sequence[Row]) -> Iterator[Breach]:
        """The breaches of a grant. That of some requests must be possible in the order of their turns."""
        waiting = [
            row
            for name, row in self.rows.items()
            if name not in item.holders and self._weight(row) <= min(before.limit, before.limit_of(row.key))
        ]
        used, last = self.used.copy(), dict(before.after_keys)
        left = sorted(added, key=lambda row: row.place)
        while left:
            after = last.get(left[0].rank, "")
            row = min((each for each in left if each.rank == left[0].rank), key=lambda each: _turn(each.key, after))
            yield from (
                Breach("S5", f"{row.execution} is granted a slot before {other.execution}, which is in front of it")
                for other in waiting
                if self.known_from[other.execution] <= before.grants
                and _is_in_front(other, row, after)
                and (other.key == row.key or not self._is_full(before, other, waiting, used))
            )
            left.remove(row)
            used[row.key] += self._weight(row)
            last[row.rank] = row.key
        turns = {rank: key for rank, key in last.items() if key}
        if turns != item.after_keys:
            yield Breach("S5", f"the last turns are {turns}, and the item has {dict(item.after_keys)}")

    def _is_full(self, before: Item, row: Row, waiting: Iterable[Row], used: Counter[str]) -> bool:
        """Whether a request, or one in front of it of its key, does not fit into the key's limit."""
        room = before.limit_of(row.key) - used[row.key]
        return any(each.key == row.key and each.place <= row.place and self._weight(each) > room for each in waiting)

    def _weight(self, row: Row) -> int:
        return row.weight or (self.item.default_weight if self.item else 1)


def _turn(key: str, after: str) -> tuple[bool, bool, str]:
    """Sorts the keys as their turns come after that of a key. Requests without a key are the last of a round."""
    return (not key, key) <= (not after, after), not key, key


def _is_in_front(other: Row, row: Row, after: str) -> bool:
    if other.key == row.key or other.rank != row.rank:
        return other.place < row.place
    return _turn(other.key, after) < _turn(row.key, after)


def wrong_order(versions: Iterable[Item | Row]) -> Iterator[tuple[str, Breach]]:
    """The breaches in the versions of items and rows, in the order of the writes, each with its process's name."""
    queues: dict[str, _Queue] = defaultdict(_Queue)
    for each in versions:
        if isinstance(each, Row):
            queues[each.process].take_row(each)
        else:
            for breach in queues[each.process].take_item(each):
                yield each.process, breach
