"""A race for one process's slots: processes of clients on DynamoDB Local, observers, and who meddles."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from dev.emulator.dynamodb_local import DynamoDbLocal
from dev.emulator.local_clients import local_client
from slotkeeper.slots.process import Processes
from slotkeeper.slots.protocol import Slots
from tests.races.slot_clients import Change, Clients, Orders
from tests.races.slot_history import Entry, Item, Operation, items_of, load
from tests.races.slot_judge import Figures, Judge

Meddling = Literal["limit", "pause", "count"]

PROCESS = "p"
MARKS = 10**15  # above those of all clients


@dataclass(frozen=True)
class Race:
    """What is raced for.

    Args:
        meddling: what somebody does meanwhile, again and again: moves the limit between 0 and a little more than it is,
            pauses and resumes, writes wrong counts and repairs them.
        changes: see Orders.
        reads_first: see Orders.
    """

    limit: int
    meddling: tuple[Meddling, ...] = ()
    changes: list[Change] = field(default_factory=list)
    reads_first: bool = False


@dataclass(frozen=True)
class Outcome:
    """A race that is over and judged."""

    judge: Judge
    figures: Figures
    seconds: float


class Crowd:
    """The clients' processes, which race as often as they are told. A context manager."""

    def __init__(self, dynamodb_local: DynamoDbLocal, processes: int, threads: int, folder: Path) -> None:
        self._local = dynamodb_local
        self._dynamodb = dynamodb_local.client()
        self._folder = folder
        self._tables = (f"slots-{number}" for number in count(1))
        self._aside = (processes + 1) // 2  # observers: who waits behind many clients sees little alone
        self._ends = ExitStack()
        self._clients = [
            self._ends.enter_context(Clients(dynamodb_local.endpoint, number, threads)) for number in range(processes)
        ]

    def race(
        self, race: Race, seconds: float, least: int = 0, watch: Callable[[str], None] = lambda _: None
    ) -> Outcome:
        """Runs a race and judges it. It takes so long, and longer until each thread has taken at least so many steps.

        `watch` hears about every second how it goes.
        """
        table = next(self._tables)
        stream = self._create(table, race.limit)
        observers = [Observer(self._dynamodb, table) for _ in range(self._aside)]
        meddlers = [
            Meddler(self._dynamodb, table, race, number) for number in range(self._aside if race.meddling else 0)
        ]
        started = time.monotonic()
        histories = [self._folder / f"{table}-{number}.jsonl" for number in range(len(self._clients))]
        with ExitStack() as asides:
            for aside in [*observers, *meddlers]:
                asides.enter_context(aside)
            for clients, history in zip(self._clients, histories, strict=True):
                clients.begin(
                    Orders(
                        table=table,
                        process=PROCESS,
                        pot=2 * race.limit + 1,
                        until=started + seconds,
                        least=least,
                        history=str(history),
                        changes=race.changes,
                        reads_first=race.reads_first,
                    )
                )
            self._follow(
                lambda done: watch(f"{time.monotonic() - started:3.0f} s: {done} steps, {observers[0].tell()}")
            )
        took = time.monotonic() - started
        operations = [operation for history in histories for operation in load(history)]
        operations += give_everything_back(self._dynamodb, table)
        judge = Judge(steady=not race.meddling)
        for item in items_of(local_client("dynamodbstreams", self._local.endpoint), stream):
            judge.take(item)
        figures = judge.conclude(operations, [observer.seen for observer in observers])
        return Outcome(judge, figures, took)

    def _create(self, table: str, limit: int) -> str:
        answer = self._dynamodb.create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "process_name", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "process_name", "KeyType": "HASH"}],
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
        )
        # Nearly full, as a large one would be only after a while.
        held = {f"{PROCESS}-{number}": {"M": holder(number)} for number in range(max(0, limit - 10))}
        item = {
            "process_name": {"S": PROCESS},
            "slot_limit": {"N": str(limit)},
            "slots_in_use": {"N": str(len(held))},
            "holders": {"M": held},
            "job_name": {"S": "job"},
        }
        self._dynamodb.put_item(TableName=table, Item=item)
        stream: str = answer["TableDescription"]["LatestStreamArn"]
        return stream

    def _follow(self, hear: Callable[[int], None]) -> None:
        running = list(self._clients)
        errors = []
        done = dict.fromkeys(running, 0)
        while running:
            for clients in list(running):
                line = clients.says()
                done[clients] = line["operations"]
                if line["over"]:
                    running.remove(clients)
                    errors += line["errors"]
            hear(sum(done.values()))
        assert not errors, "\n".join(errors)

    def __enter__(self) -> Self:
        for clients in self._clients:
            assert clients.says() == "ready"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()


class Aside:
    """A thread that does something again and again while others race. Leaving it raises what went wrong in it."""

    pause = 0.0  # seconds

    def __init__(self) -> None:
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def again(self) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        try:
            while not self._over.wait(self.pause):
                self.again()
        except BaseException as error:
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


class Observer(Aside):
    """Reads the item as fast as it can. `seen` is the digests of what it read, in order."""

    def __init__(self, dynamodb: Any, table: str) -> None:
        super().__init__()
        self.seen: list[int] = []
        self._dynamodb = dynamodb
        self._table = table
        self._last: Item | None = None

    def again(self) -> None:
        self._last = read(self._dynamodb, self._table)
        self.seen.append(self._last.digest)

    def tell(self) -> str:
        """What it saw last."""
        last = self._last
        return "" if last is None else f"{len(last.holders)} of {last.limit} slots held"


class Meddler(Aside):
    """An operator who cannot leave it, and somebody who writes to the table by hand."""

    pause = 0.01

    def __init__(self, dynamodb: Any, table: str, race: Race, number: int) -> None:
        super().__init__()
        ways: dict[Meddling, list[Callable[[], None]]] = {
            "limit": [self._move_limit, self._move_limit],
            "pause": [self._pause, self._resume],
            "count": [self._write_wrong_count, self.repair],
        }
        self._ways = [way for meddling in race.meddling for way in ways[meddling]]
        self._dynamodb = dynamodb
        self._table = table
        self._processes = Processes(dynamodb, table)
        self._slots = Slots(dynamodb, table)
        self._limit = race.limit
        self._random = random.Random(number)  # noqa: S311
        self._meddled = count(1 + number * MARKS)

    def again(self) -> None:
        self._random.choice(self._ways)()

    def repair(self) -> None:
        """As the janitor does it; whoever came between has changed what it saw, and nothing is done."""
        item = self._slots.read(PROCESS)
        assert item is not None
        if item.has_drifted:
            self._processes.repair_counter(item)

    def _move_limit(self) -> None:
        self._processes.set_limit(PROCESS, self._random.randint(0, self._limit + 2))

    def _pause(self) -> None:
        self._processes.pause(PROCESS)

    def _resume(self) -> None:
        self._processes.resume(PROCESS)

    def _write_wrong_count(self) -> None:
        self._dynamodb.update_item(
            TableName=self._table,
            Key={"process_name": {"S": PROCESS}},
            UpdateExpression="SET slots_in_use = :count, meddled = :meddled",
            ExpressionAttributeValues={
                ":count": {"N": str(self._random.choice([0, 2 * self._limit]))},
                ":meddled": {"N": str(next(self._meddled))},
            },
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self.repair()  # the last of them who leaves has nobody any more who could come between


def holder(since: int) -> dict[str, Any]:
    """One that is RESERVED, in DynamoDB's own form."""
    return {"state": {"S": "RESERVED"}, "since": {"N": str(since)}}


def read(dynamodb: Any, table: str) -> Item:
    """The item, read consistently."""
    answer = dynamodb.get_item(TableName=table, Key={"process_name": {"S": PROCESS}}, ConsistentRead=True)
    return Item.read(answer["Item"])


def give_everything_back(dynamodb: Any, table: str) -> list[Operation]:
    """What a janitor does in the end, when the others are gone."""
    slots = Slots(dynamodb, table)
    item = slots.read(PROCESS)
    assert item is not None
    operations = []
    for name, each in item.holders.items():
        start = time.monotonic()
        answer = slots.release(PROCESS, name, each.raw)
        seen = Entry.read(each.raw)
        operations.append(Operation("reclaim", name, start, time.monotonic(), str(answer), [MARKS], seen))
    return operations
