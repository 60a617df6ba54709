"""A process's item by its holders, a long queue by the size of its bodies, one request, and cancels alongside."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from dev.benchmarks.outcome import Goal, Grid, Notify, Outcome
from dev.emulator.dynamodb_local import DynamoDbLocal
from slotkeeper.slots.plan import MAX_STARTS
from slotkeeper.slots.process import MAX_HOLDERS, MAX_SLOT_LIMIT
from slotkeeper.slots.request_table import Leaving
from slotkeeper_cli.audit.intervals import percentile

from .measured_stack import PROCESS, MeasuredStack, Used

TITLE = "The tables: a process's item, a long queue, one request"
MINUTES = 3
MOST = 1.10  # x three bare writes
CALLS = 8  # until the start of a request that finds a free slot
CANCELS_A_SECOND = 20
QUEUE_ROUNDS = 10


@dataclass(frozen=True)
class Extent:
    """`queues`: bytes of a request's body -> requests. `rounds`: of each measurement."""

    holders: Sequence[int]
    queues: Mapping[int, int]
    rounds: int


# Fewer of the large ones: the engine reads the whole row for each entry of an index, 4 s for 26 of 10,000.
WHOLE = Extent((1, 10, 100, MAX_HOLDERS), {1024: 10_000, 32_000: 300}, 60)
SMALL = Extent((1, 30), {1024: 30}, 3)


def measure(folder: Path, notify: Notify, *, small: bool = False) -> Outcome:
    """Raises EngineError."""
    extent = SMALL if small else WHOLE
    with DynamoDbLocal.start(folder / "dynamodb.log") as engine:
        dynamodb = engine.client()
        items, queues = {}, {}
        for holders in extent.holders:
            notify(f"{holders} holders")
            items[holders] = _item(MeasuredStack(dynamodb, f"item{holders}", MAX_SLOT_LIMIT), holders, extent.rounds)
        notify("one request")
        requests = _requests(MeasuredStack(dynamodb, "request", 1))
        notify("cancels alongside")
        cancels = _cancels(MeasuredStack(dynamodb, "cancels", MAX_SLOT_LIMIT), extent)
        for size, length in extent.queues.items():
            notify(f"a queue of {length:,} requests with {size:,} bytes")
            queues[size] = _queue(MeasuredStack(dynamodb, f"queue{size}", 1), length, size, extent.rounds)
    grids = [_items_grid(items), _requests_grid(requests), _queues_grid(queues, extent.queues), _cancels_grid(cancels)]
    figures = {
        "items": items,
        "requests": {name: {**used.__dict__} for name, used in requests.items()},
        "queues": queues,
        "cancels": cancels,
    }
    return Outcome(grids, goals(items, requests), figures)


def _item(stack: MeasuredStack, holders: int, rounds: int) -> dict[str, Any]:
    """Units of each write with that many holders after a grant, and a cycle's time in three bare writes.

    A cycle is the write of a grant, a confirm and a release; the reads of a dispatch are not part of it.
    """
    stack.hold(holders - 1)
    me, batch = f"{PROCESS}-{'f' * 32}", [f"{PROCESS}-{number:032x}" for number in range(MAX_STARTS)]

    def cycle() -> None:
        for step in steps.values():
            step()

    def floor() -> None:
        for _ in steps:
            stack.write()

    steps: dict[str, Callable[[], None]] = {
        "grant": lambda: stack.grant([me]),
        "confirm": lambda: stack.confirm(me),
        "release": lambda: stack.release(me),
    }
    units = {}
    for name, step in steps.items():
        with stack.measured() as used:
            step()
        units[name] = used.writes
    if holders > MAX_STARTS:
        stack.hold(holders - MAX_STARTS)
        with stack.measured() as used:
            stack.grant(batch)
        units["grant of 25"] = used.writes
        stack.hold(holders - 1)
    pairs = [(_seconds(cycle) - _seconds(stack.process), _seconds(floor)) for _ in range(rounds)]
    return {"units": units, "to_floor": median(mine / bare for mine, bare in pairs)}


def _requests(stack: MeasuredStack) -> dict[str, Used]:
    """What one request with a body of 1 KB uses: that finds a free slot, and that waits for the release of another."""
    parts: dict[str, Used] = {}
    with stack.measured() as parts["free slot, until its start"]:
        first = stack.accept(1, 1024)
        stack.dispatch()
    with stack.measured() as parts["its workflow"]:
        stack.confirm(first)
        stack.record(first)
        stack.release(first)
    with stack.measured() as parts["its ring, an empty queue"]:
        stack.dispatch()
    with stack.measured() as parts["the publication of its end"]:
        stack.publish(first)
    running = stack.accept(2, 1024, caller="token")
    stack.dispatch()
    with stack.measured() as parts["full, until it is queued"]:
        stack.accept(3, 1024)
        stack.dispatch()
    stack.accept(4, 1024)
    stack.release(running)
    with stack.measured() as parts["the ring that starts it, one behind it"]:
        stack.dispatch()
    stack.fail(running)
    with stack.measured() as parts["the publication of a failure with a caller"]:
        stack.publish(running)
    return parts


def _queue(stack: MeasuredStack, length: int, size: int, rounds: int) -> dict[str, Any]:
    """Time and read units of a page, of all positions, and of a dispatch that starts one request."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: stack.accept(number, size), range(length)))

    figures = {}
    steps: dict[str, Callable[[], object]] = {
        "a page": lambda: next(stack.requests.queue(PROCESS, 1, MAX_STARTS + 1)),
        "all positions": lambda: stack.read_side.queue(PROCESS),
        "a dispatch": stack.dispatch,
    }
    for name, step in steps.items():
        spent = []
        for _ in range(min(rounds, QUEUE_ROUNDS)):
            with stack.measured() as used:
                spent.append(_seconds(step))
            for holder in stack.process().holders:  # of the dispatch
                stack.record(holder)
                stack.release(holder)
        figures[name] = {"seconds": median(spent), "reads": used.reads, "writes": used.writes, "calls": used.number}
    return figures


def _cancels(stack: MeasuredStack, extent: Extent) -> dict[str, Any]:
    """Seconds of confirm and release, alone and alongside single cancels; DynamoDB Local never reports a conflict."""
    names = [stack.accept(number, 1024) for number in range(extent.rounds * 20)]
    done = threading.Event()

    def cancel() -> int:
        ended = 0
        for name in names:
            if done.wait(1 / CANCELS_A_SECOND):
                break
            ended += len(
                stack.requests.leave(PROCESS, [Leaving(name, "CANCELLED", "Cancelled", "manually")], time.time())
            )
        return ended

    def writes() -> list[float]:
        spent = []
        for _ in range(5):
            for name in stack.hold(extent.rounds, "RESERVED"):
                spent += [_seconds(partial(step, name)) for step in (stack.confirm, stack.release)]
        return spent

    alone = writes()
    with ThreadPoolExecutor(1) as pool:
        cancelled, began = pool.submit(cancel), time.monotonic()
        alongside = writes()
        done.set()
        rate = cancelled.result() / (time.monotonic() - began)
    return {
        name: {"median": median(spent), "p99": percentile(spent, 0.99)}
        for name, spent in (("alone", alone), ("alongside", alongside))
    } | {"cancels_a_second": rate}


def _seconds(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def _items_grid(items: dict[int, dict[str, Any]]) -> Grid:
    names = ("grant", "grant of 25", "confirm", "release")
    rows = [
        (f"{holders}", *(f"{each['units'].get(name, '-')}" for name in names), f"{each['to_floor']:.2f}")
        for holders, each in items.items()
    ]
    columns = ("holders", *names, "time of a cycle in three bare writes")
    return Grid("Write units of a process's item", columns, rows, "Names of process and target of 6 characters.")


def _requests_grid(requests: dict[str, Used]) -> Grid:
    rows = [
        (name, f"{used.number}", f"{used.reads:g}", f"{used.writes:g}", ", ".join(map(_named, used.calls.items())))
        for name, used in requests.items()
    ]
    return Grid("One request with a body of 1 KB", ("", "calls", "read units", "write units", ""), rows)


def _named(call: tuple[str, int]) -> str:
    return call[0] if call[1] == 1 else f"{call[0]} x {call[1]}"


def _queues_grid(queues: dict[int, dict[str, Any]], lengths: Mapping[int, int]) -> Grid:
    rows = [
        (
            f"{name}, {lengths[size]:,} requests, bodies of {size:,} bytes",
            f"{each['seconds'] * 1000:.1f} ms",
            f"{each['reads']:g}",
            f"{each['calls']}",
        )
        for size, parts in queues.items()
        for name, each in parts.items()
    ]
    return Grid("A queue", ("", "median", "read units", "calls"), rows)


def _cancels_grid(cancels: dict[str, Any]) -> Grid:
    rows = [
        (name, *(f"{cancels[part][share] * 1000:.1f} ms" for share in ("median", "p99")))
        for name, part in (
            ("alone", "alone"),
            (f"alongside {cancels['cancels_a_second']:.0f} cancels a second", "alongside"),
        )
    ]
    return Grid("A confirm or a release", ("", "median", "p99"), rows)


def goals(items: dict[int, dict[str, Any]], requests: dict[str, Used]) -> list[Goal]:
    worst = max(each["to_floor"] for each in items.values())
    calls = requests["free slot, until its start"].number
    return [
        Goal(f"a cycle at most {MOST:.2f} x three bare writes of the same item", f"{worst:.2f}", worst <= MOST),
        Goal(f"a free slot: at most {CALLS} calls until the start", f"{calls}", calls <= CALLS),
    ]
