"""A race for leases of one process: processes of callers on DynamoDB Local, judged from the table's stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import chain, count
from typing import Any

from dev.emulator.dynamodb_local import DynamoDbLocal
from dev.emulator.local_clients import local_client
from dev.judge.slot_item import Item
from slotkeeper.slots.processes import Processes
from tests.deployed.races.crowd import Crowd
from tests.deployed.races.lease_clients import PROCESS, Change, LeaseOrders, callers
from tests.deployed.races.lease_judge import LeaseJudge


class LeaseCrowd:
    """Any number of races, each with its own table. `threads`: of each process."""

    def __init__(self, dynamodb_local: DynamoDbLocal, crowd: Crowd, threads: int) -> None:
        self._dynamodb, self._endpoint = dynamodb_local.client(), dynamodb_local.endpoint
        self._crowd, self._threads = crowd, threads
        self._numbers = count(1)

    def race(
        self, limit: int, seconds: float, min_cycles: int = 0, *, heaviest: int = 1, changes: tuple[Change, ...] = ()
    ) -> LeaseJudge:
        """Run a race and check it."""
        table = f"leases-{next(self._numbers)}"
        answer = self._dynamodb.create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "process_name", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "process_name", "KeyType": "HASH"}],
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
        )
        Processes(self._dynamodb, table).create(PROCESS, limit)
        orders = LeaseOrders(self._endpoint, table, self._threads, heaviest, seconds, min_cycles, changes)
        histories = self._crowd.run([partial(callers, orders, number) for number in range(self._crowd.processes)])
        judge = LeaseJudge(chain.from_iterable(histories))
        for image in images_of(
            local_client("dynamodbstreams", self._endpoint), answer["TableDescription"]["LatestStreamArn"]
        ):
            judge.take(Item.read(image))
        judge.conclude()
        return judge


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
