"""A race for leases of one process: processes of callers on DynamoDB Local, judged from the table's stream."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any, Self

from dev.emulator.dynamodb_local import DynamoDbLocal
from dev.emulator.local_clients import local_client
from dev.judge.slot_item import Item
from slotkeeper.slots.processes import Processes
from tests.deployed.races.controlled_process import ControlledProcess
from tests.deployed.races.lease_clients import PROCESS, Change, LeaseOrders
from tests.deployed.races.lease_judge import LeaseJudge, load

CLIENTS = "tests.deployed.races.lease_clients"


class LeaseCrowd:
    """Processes with threads, for any number of races, each with its own table. A context manager."""

    def __init__(self, dynamodb_local: DynamoDbLocal, processes: int, threads: int, folder: Path) -> None:
        self._dynamodb, self._folder = dynamodb_local.client(), folder
        self._endpoint = dynamodb_local.endpoint
        self._numbers = count(1)
        self._ends = ExitStack()
        self._clients = [
            self._ends.enter_context(ControlledProcess(CLIENTS, [self._endpoint, number, threads]))
            for number in range(processes)
        ]

    def race(
        self, limit: int, seconds: float, min_cycles: int = 0, *, heaviest: int = 1, changes: tuple[Change, ...] = ()
    ) -> LeaseJudge:
        """Run a race and check it."""
        table = f"{self._folder.name}-{next(self._numbers)}"
        answer = self._dynamodb.create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "process_name", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "process_name", "KeyType": "HASH"}],
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
        )
        Processes(self._dynamodb, table).create(PROCESS, limit)
        until = time.monotonic() + seconds
        histories = [self._folder / f"{table}-{number}.jsonl" for number in range(len(self._clients))]
        for clients, history in zip(self._clients, histories, strict=True):
            clients.send(asdict(LeaseOrders(table, heaviest, until, min_cycles, str(history), list(changes))))
        errors = [error for clients in self._clients for error in clients.receive(seconds)]
        assert not errors, "\n".join(errors)
        judge = LeaseJudge([each for history in histories for each in load(history)])
        for image in images_of(
            local_client("dynamodbstreams", self._endpoint), answer["TableDescription"]["LatestStreamArn"]
        ):
            judge.take(Item.read(image))
        judge.conclude()
        return judge

    def __enter__(self) -> Self:
        for clients in self._clients:
            assert clients.receive() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()


def images_of(streams: Any, stream_arn: str) -> Iterator[dict[str, Any]]:
    """Every item of the stream in DynamoDB's format, in the order of the writes. The client must be new.

    A write without a change adds no record (Developer Guide, "Change data capture for DynamoDB Streams").
    """
    (shard,) = streams.describe_stream(StreamArn=stream_arn)["StreamDescription"]["Shards"]
    start = {"StreamArn": stream_arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
    # An image of 200 holders is 20 KB: for a minute of them, botocore's parser takes longer than the race.
    bodies: list[bytes] = []

    def keep(response_dict: dict[str, Any], **_: Any) -> None:
        bodies.append(response_dict["body"])
        response_dict["body"] = b"{}"

    streams.meta.events.register("before-parse.dynamodb-streams.GetRecords", keep)
    page = streams.get_shard_iterator(**start)["ShardIterator"]
    while page:
        streams.get_records(ShardIterator=page, Limit=100)
        answer = json.loads(bodies.pop())
        if not answer["Records"]:
            return
        for record in answer["Records"]:
            yield record["dynamodb"]["NewImage"]
        page = answer.get("NextShardIterator")
