"""The processes of clients in a race on DynamoDB Local, for slots or for leases."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from dev.emulator.dynamodb_local import DynamoDbLocal
from dev.emulator.local_clients import local_client
from tests.deployed.races.controlled_process import ControlledProcess

PROCESS = "p"


class ClientProcesses:
    """Processes with threads, for any number of races, each with its own table. A context manager.

    Args:
        module: of the clients; it calls `client_threads.serve`.
    """

    def __init__(
        self, dynamodb_local: DynamoDbLocal, module: ModuleType, processes: int, threads: int, folder: Path
    ) -> None:
        self.dynamodb, self._folder = dynamodb_local.client(), folder
        self._endpoint = dynamodb_local.endpoint
        self._numbers = count(1)
        self._ends = ExitStack()
        self.clients = [
            self._ends.enter_context(ControlledProcess(module.__name__, [self._endpoint, number, threads]))
            for number in range(processes)
        ]

    def create_table(self) -> tuple[str, str]:
        """Create the next race's table; return its name and its stream's ARN."""
        table = f"{self._folder.name}-{next(self._numbers)}"
        answer = self.dynamodb.create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "process_name", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "process_name", "KeyType": "HASH"}],
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
        )
        return table, answer["TableDescription"]["LatestStreamArn"]

    def histories(self, table: str) -> list[Path]:
        """A file for each process."""
        return [self._folder / f"{table}-{number}.jsonl" for number in range(len(self.clients))]

    def images(self, stream: str) -> Iterator[dict[str, Any]]:
        """Every version of the item, oldest first. Call it when all writes have ended."""
        return images_of(local_client("dynamodbstreams", self._endpoint), stream)

    def wait_for_end(self, seconds: float) -> None:
        """Wait for the end of a race of so many seconds."""
        errors = [error for clients in self.clients for error in clients.receive(seconds)]
        assert not errors, "\n".join(errors)

    def __enter__(self) -> Self:
        for clients in self.clients:
            assert clients.receive() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()


def are_found(faults: Collection[str], rounds: int, race: Callable[[], Collection[str]]) -> bool:
    """Whether each of these faults is found in at most `rounds` races. `race` returns the faults of one."""
    left = set(faults)
    for _ in range(rounds):
        seen = race()
        left -= {fault for fault in left if any(fault in each for each in seen)}
        if not left:
            return True
    return False


def images_of(streams: Any, stream_arn: str) -> Iterator[dict[str, Any]]:
    """Every item of the stream in DynamoDB's format, in the order of the writes. The client must be new.

    A write without a change adds no record (Developer Guide, "Change data capture for DynamoDB Streams").
    """
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
