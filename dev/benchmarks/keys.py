"""The cost of keys, and the turns that they give, on DynamoDB Local, which answers each call with its units.

Nothing depends on time, so each run has the same figures.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from dev.benchmarks.keyed_queue import PROCESS, KeyedQueue
from dev.benchmarks.measurement import READS, WRITES
from dev.emulator.dynamodb_local import DynamoDbLocal
from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.plan import MAX_STARTS
from slotkeeper.slots.process import MAX_HOLDERS

FULL, SMALL = (3, 30, 300, 3000), (3, 30)  # numbers of keys
BACKLOG, MOST_ROWS = 100, 30_000  # requests of each key, and of a process
SLOTS, FEW = 10, 2  # while turns are counted; requests of each key that sends few

Row = list[str]
TITLES = ("all may start", "one of each key", "all keys but one at their limit", "all keys at their limit")
_UNITS = ("queries", "read units", "write units")
COSTS: Row = ["requests", "keys", *(f"{each}, {starts}" for starts in ("25 starts", "1 start") for each in _UNITS)]
TURNS: Row = ["keys", "order", "first starts of the others", "least of k starts in a row", "least of 2k"]
_names = (f"keys{number}" for number in count(1))


def counted(dynamodb: Any) -> Counter[str]:
    """The calls that a client makes from now on, by operation, and their read and write units."""
    found: Counter[str] = Counter()

    def add(model: Any, parsed: Any, **_: Any) -> None:
        consumed = parsed["ConsumedCapacity"]
        units = sum(each["CapacityUnits"] for each in (consumed if isinstance(consumed, list) else [consumed]))
        found.update({model.name: 1, "reads" if model.name in READS else "writes": units})

    for name in (*READS, *WRITES):
        asked = f"provide-client-params.dynamodb.{name}"
        dynamodb.meta.events.register(asked, lambda params, **_: {**params, "ReturnConsumedCapacity": "TOTAL"})
        dynamodb.meta.events.register(f"after-call.dynamodb.{name}", add)
    return found


def measure(log: Path, numbers: Sequence[int]) -> dict[str, list[Row]]:
    """The tables by title: with these numbers of keys, and without keys. `log`: of DynamoDB Local."""
    with DynamoDbLocal.start(log) as local:
        found = [*_costs(local, 0, BACKLOG), *_costs(local, FULL[-1], 1)]
        for keys in numbers:
            found += _costs(local, keys, min(BACKLOG, MOST_ROWS // keys))
        found.sort(key=lambda row: TITLES.index(row[0]))
        return {"Cost of keys": [COSTS, *found], "Turns": turns(local, numbers)}


def _costs(local: DynamoDbLocal, keys: int, each: int) -> Iterator[Row]:
    """Of dispatches with MAX_STARTS free slots, each followed by one after a release, if any has started.

    Args:
        each: the number of requests of each key.
    """
    client = local.client()
    names = [f"customer-{number:04}" for number in range(keys)] or [""]
    queue = KeyedQueue(client, next(_names), slot_limit=MAX_STARTS)
    queue.send(name for name in names for _ in range(each))
    calls = counted(client)

    def dispatches(title: str) -> Row:
        row = [title, f"{keys:,}" if keys else "none"]
        for _ in range(2):
            calls.clear()
            queue.ring(Bell(PROCESS))
            row += [f"{calls[each]:,.0f}" for each in ("Query", "reads", "writes")]
            starts = queue.started.qsize()
            if not starts:
                return [*row, "", "", ""]
            for _ in range(starts):
                queue.confirm(name := queue.started.get())
            queue.release(name)
        return row

    yield dispatches(TITLES[each == 1])
    if each == 1 or not keys:
        return
    # Of the key whose turn was last, so that all others are looked at before it.
    (last,) = (each["S"] for each in queue.slots.read(PROCESS)["after_keys"]["M"].values())
    held = [name for name in names if name != last] if keys <= MAX_HOLDERS - MAX_STARTS else []
    queue.hold(held)
    queue.processes.set_limit(PROCESS, len(held) + MAX_STARTS)
    queue.processes.set_key_limit(PROCESS, 1 if held else 0)
    if held:
        queue.processes.set_key_limit(PROCESS, MAX_STARTS, last)
        yield dispatches(TITLES[2])
        queue.hold(held)
        queue.processes.set_key_limit(PROCESS, 0, last)
    yield dispatches(TITLES[3])


def turns(local: DynamoDbLocal, numbers: Sequence[int]) -> list[Row]:
    """How soon each key has a start, and how many it has, if one has sent a backlog before the others."""
    rows = [TURNS]
    for keys in numbers[:3]:
        names = [f"customer-{number:04}" for number in range(keys)]
        sent = [names[0]] * keys * FEW + [name for _ in range(FEW) for name in names[1:]]
        for order, used in (("turns", sent), ("arrival", [""] * len(sent))):
            queue = KeyedQueue(local.client(), next(_names), slot_limit=SLOTS)
            queue.send(used)
            senders = dict(zip(queue.requests, sent, strict=True))
            started, starts = list[str](), _starts(queue)
            while len(started) < keys * FEW or {*names} - {*started}:
                started.append(senders[next(starts)])
            first = sorted(started.index(name) + 1 for name in names[1:])
            least = (_least(started[: keys * FEW], names, n * keys) for n in (1, 2))
            rows.append([f"{keys:,}", order, f"{first[0]:,} to {first[-1]:,}", *map(str, least)])
    return rows


def _starts(queue: KeyedQueue) -> Iterator[str]:
    """The executions in the order of their starts. Between two dispatches some of those that run end."""
    chance, running = random.Random(1), list[str]()  # noqa: S311
    while True:
        queue.ring(Bell(PROCESS))
        while not queue.started.empty():
            running.append(queue.started.get())
            yield running[-1]
        for _ in range(chance.randint(1, len(running))):
            queue.release(running.pop(chance.randrange(len(running))))


def _least(started: Sequence[str], names: Sequence[str], length: int) -> int:
    """The fewest starts of a key in any so many starts in a row."""
    parts = (Counter(started[at : at + length]) for at in range(len(started) - length + 1))
    return min(part[name] for part in parts for name in names)
