"""What a race over one process's slots leaves behind: what its clients did, and every item that there ever was.

The items come from the table's stream, which has the item as it stood after each write, in the order of the writes
(Developer Guide, "Change data capture for DynamoDB Streams"). A write that changes nothing leaves no record there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

Step = Literal["reserve", "wait", "confirm", "release", "cancel", "reclaim", "quiet"]


class Entry(NamedTuple):
    """A holder as the item has it. `since` is the mark of the reserve that made it: no two calls write the same."""

    state: str
    since: int
    job: str | None
    quiet_since: int | None

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Entry:
        quiet = raw.get("quiet_since")
        return cls(
            raw["state"]["S"], int(raw["since"]["N"]), raw.get("job", {}).get("S"), int(quiet["N"]) if quiet else None
        )


class Waiting(NamedTuple):
    sequence: str
    receives: int
    receipt_handle: str


@dataclass(frozen=True)
class Item:
    """The process's item at one instant. `meddled` changes when the test itself has written a wrong count."""

    limit: int
    count: int
    holders: Mapping[str, Entry]
    paused: bool
    waiting: Waiting | None
    meddled: int

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Item:
        waiting = raw.get("waiting", {}).get("M")
        return cls(
            limit=int(raw["slot_limit"]["N"]),
            count=int(raw["slots_in_use"]["N"]),
            holders={name: Entry.read(entry["M"]) for name, entry in raw["holders"]["M"].items()},
            paused=raw.get("paused", {}).get("BOOL", False),
            waiting=waiting
            and Waiting(waiting["sequence"]["S"], int(waiting["receives"]["N"]), waiting["receipt_handle"]["S"]),
            meddled=int(raw.get("meddled", {"N": "0"})["N"]),
        )

    @property
    def digest(self) -> int:
        """The same for two items only if they are equal, as good as certainly."""
        return hash((self.limit, self.count, frozenset(self.holders.items()), self.paused, self.waiting, self.meddled))

    @property
    def full(self) -> bool:
        return self.count >= self.limit or len(self.holders) >= self.limit

    @property
    def drift(self) -> int:
        return self.count - len(self.holders)


@dataclass(frozen=True)
class Operation:
    """One step of a client, asked for until the client knew what came of it. Times are the machine's monotonic clock.

    Each call of it wrote a mark of its own, if it wrote any; the answers to all of them but the last were lost.
    """

    step: Step
    name: str
    start: float
    end: float
    answer: str
    marks: list[int]
    seen: Entry | None = None

    @property
    def lost(self) -> int:
        return len(self.marks) - 1

    @property
    def done(self) -> bool:
        """It says that it changed the item."""
        return self.answer in {"Granted", "True", "REGISTERED"}


def save(operations: Iterable[Operation], path: Path) -> None:
    path.write_text("\n".join(json.dumps(asdict(operation)) for operation in operations))


def load(path: Path) -> Iterator[Operation]:
    for line in path.read_text().splitlines():
        fields = json.loads(line)
        yield Operation(**fields | {"seen": Entry(*fields["seen"]) if fields["seen"] else None})


def items_of(streams: Any, stream_arn: str) -> Iterator[Item]:
    """Every item that the stream has, the oldest first. Whoever calls has stopped writing."""
    (shard,) = streams.describe_stream(StreamArn=stream_arn)["StreamDescription"]["Shards"]
    start = {"StreamArn": stream_arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
    # An image of 200 holders is 20 KB: botocore's own parser would take longer over a minute of them than the race.
    bodies: list[bytes] = []
    streams.meta.events.register("before-parse.dynamodb-streams.GetRecords", _keep_unparsed(bodies))
    page = streams.get_shard_iterator(**start)["ShardIterator"]
    while page:
        streams.get_records(ShardIterator=page, Limit=100)
        answer = json.loads(bodies.pop())
        if not answer["Records"]:
            return
        for record in answer["Records"]:
            yield Item.read(record["dynamodb"]["NewImage"])
        page = answer.get("NextShardIterator")


def _keep_unparsed(bodies: list[bytes]) -> Any:
    def keep(response_dict: dict[str, Any], **_: Any) -> None:
        bodies.append(response_dict["body"])
        response_dict["body"] = b"{}"

    return keep
