"""A race for one process's slots: processes of clients on DynamoDB Local, observers, and disturbers."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal, Self

from dev.emulator.dynamodb_local import DynamoDbLocal
from dev.judge.slot_item import Holder, Item
from slotkeeper.slots import process
from slotkeeper.slots.process import MAX_HOLDERS
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queues import MAX_WAKES
from slotkeeper.slots.request import Priority
from tests.races import slot_clients
from tests.races.client_processes import PROCESS, ClientProcesses
from tests.races.client_threads import Change, changed
from tests.races.slot_clients import Orders
from tests.races.slot_history import Operation, digest, load
from tests.races.slot_judge import Figures, Judge

Disturbance = Literal["limit", "pause", "count"]

MARKS = 10**15  # above those of all clients


@dataclass(frozen=True)
class Race:
    """The parameters of a race.

    Args:
        disturbances: repeated: "limit" moves it between 0 and `limit + 2`, "pause" pauses and resumes, "count"
            writes wrong counts and repairs them.
        changes: see Orders.
        reads_first: see Orders.
        priorities, weights: see Messages.
        default_weight: of the process.
        most_holders: instead of MAX_HOLDERS.
    """

    limit: int
    disturbances: tuple[Disturbance, ...] = ()
    changes: list[Change] = field(default_factory=list)
    reads_first: bool = False
    priorities: tuple[Priority, ...] = ("normal",)
    weights: tuple[int, ...] = (0, 1)
    default_weight: int = 1
    most_holders: int = MAX_HOLDERS


@dataclass(frozen=True)
class Outcome:
    """A race that has ended and was checked."""

    judge: Judge
    figures: Figures


class Crowd(ClientProcesses):
    """The clients' processes."""

    def __init__(self, dynamodb_local: DynamoDbLocal, processes: int, threads: int, folder: Path) -> None:
        super().__init__(dynamodb_local, slot_clients, processes, threads, folder)
        self._observer_count = (processes + 1) // 2  # several, because one reads seldom among many clients

    def race(self, race: Race, seconds: float, min_steps: int = 0, *, observed: bool = True) -> Outcome:
        """Run a race for `seconds`, and until each thread has made at least `min_steps` steps, and check it.

        Args:
            observed: by threads that read the item during the race.
        """
        table, stream = self.create_table()
        self._put_process(table, race)
        observers = [Observer(self.dynamodb, table) for _ in range(self._observer_count if observed else 0)]
        disturbers = [
            Disturber(self.dynamodb, table, race, number)
            for number in range(self._observer_count if race.disturbances else 0)
        ]
        started = time.monotonic()
        histories = self.histories(table)
        with ExitStack() as background:
            for thread in [*observers, *disturbers]:
                background.enter_context(thread)
            for clients, history in zip(self.clients, histories, strict=True):
                orders = Orders(
                    table=table,
                    process=PROCESS,
                    executions=2 * race.limit + 1,
                    priorities=list(race.priorities),
                    weights=list(race.weights),
                    most_holders=race.most_holders,
                    until=started + seconds,
                    min_steps=min_steps,
                    history=str(history),
                    changes=race.changes,
                    reads_first=race.reads_first,
                )
                clients.send(asdict(orders))
            self.wait_for_end(seconds)
        operations = [operation for history in histories for operation in load(history)]
        operations += release_all(self.dynamodb, table)
        operations += reject_wakes(self.dynamodb, table, race)
        judge = Judge(operations, steady=not race.disturbances, counted="count" not in race.disturbances)
        with changed(process, MAX_HOLDERS=race.most_holders):
            for image in self.images(stream):
                judge.take(Item.read(image))
        figures = judge.conclude([observer.seen for observer in observers])
        return Outcome(judge, figures)

    def _put_process(self, table: str, race: Race) -> None:
        # Nearly full from the start; a large process would otherwise fill slowly.
        held = {
            f"{PROCESS}-{number}": {"M": holder(number)}
            for number in range(min(max(0, race.limit - 5), race.most_holders))
        }
        item: dict[str, Any] = {
            "process_name": {"S": PROCESS},
            "slot_limit": {"N": str(race.limit)},
            "slots_in_use": {"N": str(len(held))},
            "holders": {"M": held},
            "waiting": {"M": {}},
            "target": {"S": "job"},
            "run_settings": {"M": {}},
        }
        if race.default_weight > 1:
            item["default_weight"] = {"N": str(race.default_weight)}
        self.dynamodb.put_item(TableName=table, Item=item)


class BackgroundThread:
    """A thread that repeats an action during a race. Its exit raises the thread's exception."""

    pause = 0.0  # seconds

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def act(self) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        try:
            while not self._ended.wait(self.pause):
                self.act()
        except BaseException as error:
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


class Observer(BackgroundThread):
    """Reads the item continuously. `seen` has the digests of the reads, in order."""

    def __init__(self, dynamodb: Any, table: str) -> None:
        super().__init__()
        self.seen: list[int] = []
        self._dynamodb = dynamodb
        self._table = table

    def act(self) -> None:
        self.seen.append(digest(read(self._dynamodb, self._table)))


class Disturber(BackgroundThread):
    """An operator who changes the process repeatedly, and writes wrong counts to the table."""

    pause = 0.01

    def __init__(self, dynamodb: Any, table: str, race: Race, number: int) -> None:
        super().__init__()
        ways: dict[Disturbance, list[Callable[[], None]]] = {
            "limit": [self._move_limit, self._move_limit],
            "pause": [self._pause, self._resume],
            "count": [self._write_wrong_count, self.repair],
        }
        self._ways = [way for disturbances in race.disturbances for way in ways[disturbances]]
        self._dynamodb = dynamodb
        self._table = table
        self._processes = Processes(dynamodb, table)
        self._slots = Slots(dynamodb, table)
        self._limit = race.limit
        self._random = random.Random(number)  # noqa: S311
        self._disturbed = count(1 + number * MARKS)

    def act(self) -> None:
        self._random.choice(self._ways)()

    def repair(self) -> None:
        """Repair the count like the janitor, without effect if the item has changed since the read."""
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
            UpdateExpression="SET slots_in_use = :count, disturbed = :disturbed",
            ExpressionAttributeValues={
                ":count": {"N": str(self._random.choice([0, 2 * self._limit]))},
                ":disturbed": {"N": str(next(self._disturbed))},
            },
        )

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.repair()  # at the exit of the last disturber no other one can interfere


def holder(since: int) -> dict[str, Any]:
    """A RESERVED holder in DynamoDB's format."""
    return {"state": {"S": "RESERVED"}, "since": {"N": str(since)}}


def read(dynamodb: Any, table: str) -> Item:
    """The item, read consistently."""
    answer = dynamodb.get_item(TableName=table, Key={"process_name": {"S": PROCESS}}, ConsistentRead=True)
    return Item.read(answer["Item"])


def release_all(dynamodb: Any, table: str) -> list[Operation]:
    """Free every slot like the janitor, after the race."""
    slots = Slots(dynamodb, table)
    item = slots.read(PROCESS)
    assert item is not None
    operations = []
    for name, each in item.holders.items():
        start = time.monotonic()
        answer = slots.release(PROCESS, name, each.raw)
        seen = Holder.read(each.raw)
        operations.append(Operation("reclaim", name, start, time.monotonic(), str(answer), [MARKS], seen))
    return operations


def reject_wakes(dynamodb: Any, table: str, race: Race) -> list[Operation]:
    """Wake after the race as `wake_next` does, while SQS rejects every receipt handle: the messages have ended."""
    slots, processes = Slots(dynamodb, table), Processes(dynamodb, table)
    processes.resume(PROCESS)
    processes.set_limit(PROCESS, max(race.limit, *race.weights))
    operations = []
    for _ in range(MAX_WAKES):
        if due := slots.to_wake(PROCESS, time.time()):
            start = time.monotonic()
            answer = slots.clear(PROCESS, due.waiting, time.time())
            operations.append(
                Operation("clear", due.waiting.receipt_handle, start, time.monotonic(), str(answer), [MARKS])
            )
    return operations
