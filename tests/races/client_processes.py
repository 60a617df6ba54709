"""The processes of clients in a race on DynamoDB Local, for slots or for leases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Self

from dev.emulator.dynamodb_local import DynamoDbLocal
from dev.emulator.local_clients import local_client
from tests.races.controlled_process import ControlledProcess
from tests.races.slot_history import images_of

PROCESS = "p"


class ClientProcesses[Clients: ControlledProcess]:
    """Processes with threads, for any number of races, each with its own table. A context manager.

    Args:
        clients: starts a process: endpoint, number of the process, threads.
    """

    def __init__(
        self,
        dynamodb_local: DynamoDbLocal,
        clients: Callable[[str, int, int], Clients],
        processes: int,
        threads: int,
        folder: Path,
    ) -> None:
        self.dynamodb, self._folder = dynamodb_local.client(), folder
        self._endpoint = dynamodb_local.endpoint
        self._numbers = count(1)
        self._ends = ExitStack()
        self.clients = [
            self._ends.enter_context(clients(dynamodb_local.endpoint, number, threads)) for number in range(processes)
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

    def follow(self, show: Callable[[int], None]) -> None:
        """Wait for the end of the race. `show` receives the number of steps that are done."""
        running, errors, done = list(self.clients), [], dict.fromkeys(self.clients, 0)
        while running:
            for clients in list(running):
                line = clients.receive()
                done[clients] = line["done"]
                if line["ended"]:
                    running.remove(clients)
                    errors += line["errors"]
            show(sum(done.values()))
        assert not errors, "\n".join(errors)

    def __enter__(self) -> Self:
        for clients in self.clients:
            assert clients.receive() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()
