"""The history of a race for one process's slots: the clients' operations, and every version of the item.

The versions come from the table's stream, which has the item after each write, in the order of the writes (Developer
Guide, "Change data capture for DynamoDB Streams"). A write without a change adds no record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from dev.judge.slot_item import Holder, Item
from tests.races.slot_messages import Message

Step = Literal["reserve", "wait", "confirm", "release", "cancel", "reclaim", "quiet", "clear", "end_wait"]


def digest(item: Item) -> int:
    """Equal items have equal digests; other items almost certainly have others."""
    return hash(tuple(frozenset(each.items()) if isinstance(each, Mapping) else each for each in vars(item).values()))


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
    seen: Holder | None = None
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
        yield Operation(**fields, seen=seen and Holder(*seen), message=message and Message(*message))


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
