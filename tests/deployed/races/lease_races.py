"""A race for leases of one process: processes of callers on DynamoDB Local, judged from the table's stream."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dev.emulator.dynamodb_local import DynamoDbLocal
from dev.judge.slot_item import Item
from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.rate import Rate
from tests.deployed.races import lease_clients
from tests.deployed.races.client_processes import PROCESS, ClientProcesses
from tests.deployed.races.client_threads import Change
from tests.deployed.races.lease_clients import LeaseOrders
from tests.deployed.races.lease_judge import LeaseFigures, LeaseJudge, load


@dataclass(frozen=True)
class LeaseOutcome:
    """A race that has ended and was checked."""

    judge: LeaseJudge
    figures: LeaseFigures


class LeaseCrowd(ClientProcesses):
    """The callers' processes."""

    def __init__(self, dynamodb_local: DynamoDbLocal, processes: int, threads: int, folder: Path) -> None:
        super().__init__(dynamodb_local, lease_clients, processes, threads, folder)

    def race(
        self,
        limit: int,
        seconds: float,
        min_cycles: int = 0,
        *,
        heaviest: int = 1,
        changes: tuple[Change, ...] = (),
        skew: int = CLOCK_SKEW_SECONDS,
        pace: Rate | None = None,
        grant_changes: tuple[Change, ...] = (),
        pace_changes: tuple[Change, ...] = (),
    ) -> LeaseOutcome:
        """Run a race and check it. `skew`: a wrong CLOCK_SKEW_SECONDS. `pace`: the process's rate, in race seconds."""
        table, stream = self.create_table()
        Processes(self.dynamodb, table).create(PROCESS, limit, rate=pace)
        started = time.monotonic()
        histories = self.histories(table)
        for clients, history in zip(self.clients, histories, strict=True):
            until = started + seconds
            orders = LeaseOrders(table, PROCESS, heaviest, until, min_cycles, str(history), list(changes), skew)
            orders = replace(orders, grant_changes=list(grant_changes), pace_changes=list(pace_changes))
            clients.send(asdict(orders))
        self.wait_for_end(seconds)
        judge = LeaseJudge([each for history in histories for each in load(history)], pace)
        for image in self.images(stream):
            judge.take(Item.read(image))
        return LeaseOutcome(judge, judge.conclude())
