"""A race of dispatchers for the queue of one process, and its judge.

The stream of SlotTable has each version of the process's item, so the judge follows each request: queued, granted, put
back, released. The rows and the clients' answers state which were cancelled.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dev.emulator.dynamodb_local import DynamoDbLocal
from slotkeeper.aws.dynamodb import number
from slotkeeper.slots.intake import Accepted, accept
from slotkeeper.slots.request import PRIORITIES, Request
from slotkeeper.slots.request_table import RequestTable
from tests.deployed.races import dispatch_clients
from tests.deployed.races.client_processes import PROCESS, ClientProcesses
from tests.deployed.races.client_threads import Change
from tests.deployed.races.dispatch_clients import NOW, Did, DispatchOrders
from tests.simulation.account.tables import create_table
from tests.simulation.aws.dynamodb import INDEXES

STEPS = 200  # of each thread, at most
WEIGHTS = (None, None, 1, 2, 3, 4)

Item = dict[str, Any]


@dataclass(frozen=True)
class DispatchRace:
    """The parameters of a race.

    Args:
        requests: the number of requests, of all priorities and of WEIGHTS.
        cancels, limits, throttled, changes: see DispatchOrders.
    """

    limit: int = 3
    requests: int = 24
    cancels: float = 0.0
    limits: tuple[int, ...] = ()
    throttled: float = 0.1
    changes: Mapping[str, list[Change]] = field(default_factory=dict)


@dataclass(frozen=True)
class DispatchOutcome:
    """A race that has ended. `faults`: sentences."""

    faults: list[str]
    did: Did
    most_in_use: int


class Dispatchers(ClientProcesses):
    """The clients' processes."""

    def __init__(self, dynamodb_local: DynamoDbLocal, processes: int, threads: int, folder: Path) -> None:
        super().__init__(dynamodb_local, dispatch_clients, processes, threads, folder)

    def race(self, race: DispatchRace, seed: int) -> DispatchOutcome:
        """Run a race to the end of its queue, and judge it."""
        slots, stream = self.create_table()
        rows = f"{slots}-rows"
        create_table(self.dynamodb, rows, "process_name", "execution", INDEXES["requests"])
        self.dynamodb.put_item(TableName=slots, Item=_process(race.limit))
        _fill(RequestTable(self.dynamodb, rows, slots), race.requests, random.Random(seed))  # noqa: S311
        histories = self.histories(slots)
        for clients, history in zip(self.clients, histories, strict=True):
            orders = DispatchOrders(
                slots=slots,
                rows=rows,
                cancels=race.cancels,
                limits=list(race.limits),
                throttled=race.throttled,
                steps=STEPS,
                history=str(history),
                changes=dict(race.changes),
            )
            clients.send(asdict(orders))
        self.wait_for_end(0)
        did = Did()
        for history in histories:
            did.add(Did(**json.loads(history.read_text())))
        return _judged(self.images(stream), self.dynamodb.scan(TableName=rows)["Items"], did)


def _fill(table: RequestTable, count: int, chance: random.Random) -> None:
    for at in range(count):
        request = Request(PROCESS, {}, str(at), priority=chance.choice(PRIORITIES), weight=chance.choice(WEIGHTS))
        answer = accept(table, request, f"m{at}", NOW, str(at), NOW)
        assert isinstance(answer, Accepted)


def _process(limit: int) -> Item:
    return {
        "process_name": {"S": PROCESS},
        "slot_limit": number(limit),
        "slots_in_use": number(0),
        "holders": {"M": {}},
        "target": {"S": "job"},
        "run_settings": {"M": {}},
        "grants": number(1),
    }


def _judged(images: Iterable[Item], rows: list[Item], did: Did) -> DispatchOutcome:
    places = {row["execution"]["S"]: row["placed"]["S"] for row in rows}
    weights = {row["execution"]["S"]: _weight(row) for row in rows}
    cancelled = {row["execution"]["S"] for row in rows if row["state"]["S"] == "CANCELLED"}
    faults: list[str] = []
    waiting = set(places) - cancelled  # that are queued, as each grant has found them
    ever_held: set[str] = set()  # without those that were put back
    held: Item = {}
    before, most = 0, 0
    for image in images:
        holders, limit, now = image["holders"]["M"], int(image["slot_limit"]["N"]), int(image["grants"]["N"])
        in_use = sum(_weight(each["M"]) for each in holders.values())
        added, removed = holders.keys() - held.keys(), held.keys() - holders.keys()
        if int(image["slots_in_use"]["N"]) != in_use:
            faults.append(f"slots_in_use is {image['slots_in_use']['N']}, the holders have {in_use}")
        if added and in_use > limit:
            faults.append(f"a grant of {sorted(added)} makes {in_use} of {limit}")
        waiting -= added
        last = max((places[name] for name in added), default="")
        passed = [name for name in waiting if weights[name] <= limit and places[name] < last]
        faults += [f"a grant of {sorted(added)} before {name}" for name in passed]
        ever_held |= added
        # A slot that was never confirmed was put back, or dropped since its request has left. A drop keeps `grants`.
        waiting |= {name for name in removed - cancelled if held[name]["M"]["state"]["S"] == "RESERVED"}
        ever_held -= removed if now != before else set()
        held, before, most = holders, now, max(most, in_use)
    faults += [f"{name} was cancelled, and had a slot" for name in cancelled & ever_held]
    faults += [f"{name} was cancelled, and has run" for name in cancelled & set(did.confirmed)]
    if sorted(did.cancelled) != sorted(cancelled):
        faults.append(f"cancelled by the answers {sorted(did.cancelled)}, by the rows {sorted(cancelled)}")
    if len(set(did.confirmed)) < len(did.confirmed):
        faults.append("a request has run twice")
    return DispatchOutcome(faults, did, most)


def _weight(entry: Item) -> int:
    return int(entry["weight"]["N"]) if "weight" in entry else 1
