"""A race for leases of one process: processes of callers on DynamoDB Local, judged from the table's stream."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Self

from dev.emulator.dynamodb_local import DynamoDbLocal
from dev.emulator.local_clients import local_client
from slotkeeper.slots.process import LEASE_CLOCK_SKEW
from slotkeeper.slots.processes import Processes
from tests.races.lease_clients import Change, LeaseClients, LeaseOrders
from tests.races.lease_judge import LeaseFigures, LeaseItem, LeaseJudge, load
from tests.races.slot_history import images_of

PROCESS = "p"


@dataclass(frozen=True)
class LeaseOutcome:
    """A race that has ended and was checked."""

    judge: LeaseJudge
    figures: LeaseFigures
    seconds: float

    @property
    def line(self) -> str:
        each = self.figures
        return (
            f"{each.grants} granted, {each.refusals} refused, {each.takeovers} taken over, {each.extensions} extended, "
            f"{each.lost_leases} lost, {each.lost_answers} answers lost; checked {each.writes} writes: at most "
            f"{each.most_in_use} in use, {each.most_in_blocks} in blocks, {len(self.judge.faults)} faults"
        )


class LeaseCrowd:
    """The callers' processes, for any number of races. A context manager."""

    def __init__(self, dynamodb_local: DynamoDbLocal, processes: int, threads: int, folder: Path) -> None:
        self._local, self._dynamodb, self._folder = dynamodb_local, dynamodb_local.client(), folder
        self._tables = (f"leases-{number}" for number in count(1))
        self._ends = ExitStack()
        self._clients = [
            self._ends.enter_context(LeaseClients(dynamodb_local.endpoint, number, threads))
            for number in range(processes)
        ]

    def race(
        self,
        limit: int,
        seconds: float,
        min_cycles: int = 0,
        *,
        heaviest: int = 1,
        changes: tuple[Change, ...] = (),
        skew: int = LEASE_CLOCK_SKEW,
        watch: Callable[[str], None] = lambda _: None,
    ) -> LeaseOutcome:
        """Run a race and check it. `watch` receives a progress line every second. `skew`: a wrong LEASE_CLOCK_SKEW."""
        table = next(self._tables)
        stream = self._create(table, limit)
        started = time.monotonic()
        histories = [self._folder / f"{table}-{number}.jsonl" for number in range(len(self._clients))]
        for clients, history in zip(self._clients, histories, strict=True):
            until = started + seconds
            clients.begin(LeaseOrders(table, PROCESS, heaviest, until, min_cycles, str(history), list(changes), skew))
        self._follow(lambda done: watch(f"{time.monotonic() - started:3.0f} s: {done} leases asked for"))
        took = time.monotonic() - started
        judge = LeaseJudge([each for history in histories for each in load(history)])
        for image in images_of(local_client("dynamodbstreams", self._local.endpoint), stream):
            judge.take(LeaseItem.read(image))
        return LeaseOutcome(judge, judge.conclude(), took)

    def _create(self, table: str, limit: int) -> str:
        answer = self._dynamodb.create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "process_name", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "process_name", "KeyType": "HASH"}],
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
        )
        Processes(self._dynamodb, table).create(PROCESS, limit, "job")
        stream: str = answer["TableDescription"]["LatestStreamArn"]
        return stream

    def _follow(self, show: Callable[[int], None]) -> None:
        running, errors, done = list(self._clients), [], dict.fromkeys(self._clients, 0)
        while running:
            for clients in list(running):
                line = clients.receive()
                done[clients] = line["cycles"]
                if line["ended"]:
                    running.remove(clients)
                    errors += line["errors"]
            show(sum(done.values()))
        assert not errors, "\n".join(errors)

    def __enter__(self) -> Self:
        for clients in self._clients:
            assert clients.receive() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()
