"""The history of a race for one process's slots: the clients' operations, and every state of the item.

The states come from the table's stream, which has the item after each write, in the order of the writes (Developer
Guide, "Change data capture for DynamoDB Streams"). A write without a change adds no record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from slotkeeper.slots.process import higher
from slotkeeper.slots.request import PRIORITIES, Priority
from tests.races.slot_messages import Message

Step = Literal["reserve", "wait", "confirm", "release", "cancel", "reclaim", "quiet", "clear", "end_wait"]


class Entry(NamedTuple):
    """A holder in the item. `since` is the mark of the reserve that wrote it, unique for each call."""

    state: str
    since: int
    target: str | None
    quiet_since: int | None
    weight: int

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Entry:
        quiet = raw.get("quiet_since")
        return cls(
            raw["state"]["S"],
            int(raw["since"]["N"]),
            raw.get("job", {}).get("S"),
            int(quiet["N"]) if quiet else None,
            int(raw.get("weight", {"N": "1"})["N"]),
        )


class Waiting(NamedTuple):
    """A registration, or with an empty receipt handle a tombstone. Only that of a waker names an execution."""

    sequence: str
    receives: int
    receipt_handle: str
    weight: int
    execution: str

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Waiting:
        return cls(
            raw["sequence"]["S"],
            int(raw["receives"]["N"]),
            raw.get("receipt_handle", {"S": ""})["S"],
            int(raw.get("weight", {"N": "0"})["N"]),
            raw.get("execution", {"S": ""})["S"],
        )

    @property
    def position(self) -> tuple[str, int]:
        return self.sequence, self.receives


@dataclass(frozen=True)
class Item:
    """The process's item at one instant. `disturbed` changes when the test itself writes a wrong count.

    `waiting` is by priority: each registration and tombstone. So is `turns`: when the last turn began.
    `lost`: the requests that were found to be gone, and the mark of the reserve that found it.
    """

    limit: int
    count: int
    holders: Mapping[str, Entry]
    paused: bool
    waiting: Mapping[str, Waiting]
    turns: Mapping[str, int]
    lost: Mapping[str, int]
    disturbed: int

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Item:
        return cls(
            limit=int(raw["slot_limit"]["N"]),
            count=int(raw["slots_in_use"]["N"]),
            holders={name: Entry.read(entry["M"]) for name, entry in raw["holders"]["M"].items()},
            paused=raw.get("paused", {}).get("BOOL", False),
            waiting={priority: Waiting.read(entry["M"]) for priority, entry in raw["waiting"]["M"].items()},
            turns={each: int(raw[f"turn_{each}"]["N"]) for each in PRIORITIES if f"turn_{each}" in raw},
            lost={name: int(note["M"]["noted"]["N"]) for name, note in raw.get("lost", {"M": {}})["M"].items()},
            disturbed=int(raw.get("disturbed", {"N": "0"})["N"]),
        )

    @property
    def digest(self) -> int:
        """Equal items have equal digests; other items almost certainly have others."""
        holders, waiting = frozenset(self.holders.items()), frozenset(self.waiting.items())
        turns, lost = frozenset(self.turns.items()), frozenset(self.lost.items())
        return hash((self.limit, self.count, holders, self.paused, waiting, turns, lost, self.disturbed))

    @property
    def weight(self) -> int:
        """The sum of the holders' weights."""
        return sum(entry.weight for entry in self.holders.values())

    @property
    def drift(self) -> int:
        return self.count - self.weight

    @property
    def registered(self) -> Mapping[str, Waiting]:
        """Without the tombstones."""
        return {priority: each for priority, each in self.waiting.items() if each.receipt_handle}

    def fits(self, weight: int, most_holders: int) -> bool:
        in_use = max(self.count, self.weight)
        return not self.paused and in_use + weight <= self.limit and len(self.holders) < most_holders

    def before(self, priority: Priority, *, with_message: bool) -> dict[str, Waiting]:
        """The registrations that keep a request of this priority out; a caller without a message, all of them."""
        earlier = higher(priority) if with_message else PRIORITIES
        return {each: one for each, one in self.registered.items() if each in earlier and one.weight <= self.limit}


@dataclass(frozen=True)
class Operation:
    """One step of a client, repeated until it received an answer. Times are of the monotonic clock.

    Each call writes its own mark, if it takes effect. All answers but the last were lost.

    Args:
        name: an execution; of "clear" the receipt handle.
        seen: the holder that the caller has read before.
        message: of "reserve", "wait" and "end_wait".
    """

    step: Step
    name: str
    start: float
    end: float
    answer: str
    marks: list[int]
    seen: Entry | None = None
    message: Message | None = None

    @property
    def lost(self) -> int:
        return len(self.marks) - 1

    @property
    def done(self) -> bool:
        """The answer states that the step changed the item."""
        return self.answer in {"Granted", "True", "REGISTERED"}


def save(operations: Iterable[Operation], path: Path) -> None:
    path.write_text("\n".join(json.dumps(asdict(operation)) for operation in operations))


def load(path: Path) -> Iterator[Operation]:
    for line in path.read_text().splitlines():
        fields = json.loads(line)
        seen, message = fields.pop("seen"), fields.pop("message")
        yield Operation(**fields, seen=seen and Entry(*seen), message=message and Message(*message))


def images_of(streams: Any, stream_arn: str) -> Iterator[dict[str, Any]]:
    """Every item of the stream in DynamoDB's format, oldest first. The client must be new."""
    (shard,) = streams.describe_stream(StreamArn=stream_arn)["StreamDescription"]["Shards"]
    start = {"StreamArn": stream_arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
    # An image of 200 holders is 20 KB: for a minute of them, botocore's parser takes longer than the race.
    bodies: list[bytes] = []
    streams.meta.events.register("before-parse.dynamodb-streams.GetRecords", _keep_unparsed(bodies))
    page = streams.get_shard_iterator(**start)["ShardIterator"]
    while page:
        streams.get_records(ShardIterator=page, Limit=100)
        answer = json.loads(bodies.pop())
        if not answer["Records"]:
            return
        for record in answer["Records"]:
            yield record["dynamodb"]["NewImage"]
        page = answer.get("NextShardIterator")


def _keep_unparsed(bodies: list[bytes]) -> Any:
    def keep(response_dict: dict[str, Any], **_: Any) -> None:
        bodies.append(response_dict["body"])
        response_dict["body"] = b"{}"

    return keep
