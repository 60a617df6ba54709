"""Rounds of the janitor over many processes: what a round calls, one call after the other, and how long that takes.

The scenes are made as they are found, without the way there. A round is the handler's own, with its metrics and logs.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from dev.benchmarks.scale.account import SETTLED, Account, Group
from dev.benchmarks.scale.drive import Functions, process_item, process_name
from dev.benchmarks.scale.meter import Meter, Output
from slotkeeper.slots.names import execution_name
from tests.simulation import janitor_scenes
from tests.simulation.frozen import Record, freeze, record
from tests.simulation.slots_state import JOB
from tests.simulation.worlds import BEGINNING

_DAY = 86400
# Reckoned, not measured: what a call takes inside a region, and a page of a long list.
CALL_SECONDS = 0.010
PAGE_SECONDS = 0.100
_PAGES = ("stepfunctions.list_executions", "dynamodb.scan", "glue.get_job_runs")
# Of a processor, at the template's 512 MB (Lambda guide, "Configure Lambda function memory": one at 1,769 MB).
SHARE_OF_A_PROCESSOR = 512 / 1769


@dataclass(frozen=True)
class Scene:
    """What the janitor finds.

    Args:
        holders: of each process, whose workflows run.
        dead: of each process, whose workflows were aborted an hour ago.
        waiting: "hidden": who waits is hidden, and there is no room; "gone": there is room, and the registration is of
            a message that has long been consumed; "": nobody has ever waited.
        failed: workflows that failed in the last fortnight, each settled long since.
        throttled: operations that are refused, always.
    """

    name: str
    processes: int
    holders: int = 0
    dead: int = 0
    waiting: str = ""
    failed: int = 0
    throttled: Sequence[str] = ()


def measure(scene: Scene, rounds: int = 2) -> dict[str, Any]:
    """The scene, and of each round: counts, CPU seconds, and the seconds that it would take."""
    meter = Meter()
    account = Account(meter)
    account.now = BEGINNING + 30 * _DAY
    _make(account, scene)
    account.throttled = set(scene.throttled)
    told = []
    before, sys.stdout = sys.stdout, Output(meter)
    try:
        functions = Functions(account)
        for number in range(rounds):
            meter.owner = str(number)
            meter.cpu.clear()
            found = functions.round()
            counts = dict(meter.counts[meter.owner])
            cpu = meter.cpu["janitor"] / 1e9
            told.append({"counts": counts, "cpu_seconds": cpu, "found": found, "seconds": reckoned(counts, cpu)})
            account.now += 60
    finally:
        sys.stdout = before
    return {"scene": asdict(scene), "rounds": told}


def endure(number: int, small: bool = False) -> dict[str, Any]:
    """A trouble of janitor_scenes.py in virtual time, and what came of it. Small: something else, to be quick."""
    trouble = janitor_scenes.TROUBLES[number]
    make = partial(janitor_scenes.many_processes, processes=3, dead=2) if small else trouble.make
    return {"name": trouble.name} | asdict(janitor_scenes.play(make, trouble.until))


def calls(counts: dict[str, int]) -> int:
    """Calls of AWS, which a round makes one after the other."""
    return sum(number for name, number in counts.items() if "." in name and not name.startswith("lambda."))


def reckoned(counts: dict[str, int], cpu_seconds: float) -> float:
    """Seconds that a round takes on Lambda."""
    pages = sum(counts.get(name, 0) for name in _PAGES)
    waits = (calls(counts) - pages) * CALL_SECONDS + pages * PAGE_SECONDS
    return waits + cpu_seconds / SHARE_OF_A_PROCESSOR


def _make(account: Account, scene: Scene) -> None:
    ended = account.now - 3600
    for number in range(scene.processes):
        name = process_name(number)
        item = process_item(name, scene.holders + scene.dead if scene.waiting == "hidden" else 500)
        held = [execution_name(name, str(each), 1) for each in range(scene.holders + scene.dead)]
        entry = {"M": {"state": {"S": "RUNNING"}, "since": {"N": str(int(ended))}, "job": {"S": JOB}}}
        item["holders"] = {"M": dict.fromkeys(held, entry)}
        item["slots_in_use"] = {"N": str(len(held))}
        if scene.waiting:
            item["waiting"] = _registered(account, name, is_there=scene.waiting == "hidden")
        account.put(item)
        for each, execution in enumerate(held):
            is_dead = each >= scene.holders
            account.executions[execution] = _execution("ABORTED" if is_dead else "RUNNING", ended - _DAY, ended)
            if is_dead:
                account.closed.setdefault("ABORTED", []).append(execution)
                account.items[SETTLED][execution] = freeze({"execution_name": {"S": execution}})
            else:
                account.open[execution] = None
    for number in range(scene.failed):
        execution = f"{process_name(0)}-{number:032}"
        at = account.now - 13 * _DAY + number * 12 * _DAY / scene.failed
        account.executions[execution] = _execution("FAILED", at - 60, at)
        account.closed.setdefault("FAILED", []).append(execution)
        account.items[SETTLED][execution] = freeze({"execution_name": {"S": execution}})


def _execution(status: str, started: float, stopped: float) -> Record:
    stopped = 0 if status == "RUNNING" else stopped
    told = {"status": status, "input": "{}", "started": started, "stopped": stopped, "cause": "", "redrives": 0}
    return record({**told, "error": "RequestFailed" if status == "FAILED" else ""})


def _registered(account: Account, name: str, is_there: bool) -> dict[str, Any]:
    """A registration of a message that is hidden, or of one that was consumed."""
    group = account.groups[name] = Group(name, deque(['{"process": "p"}']), account.now)
    message = group.receive(account.now)
    if message is None:
        raise RuntimeError(f"{name} has no message")
    if not is_there:
        group.delete(message["handle"], account.now)
    waiting = {
        "receipt_handle": {"S": message["handle"]},
        "sequence": {"S": "1".zfill(40)},
        "receives": {"N": "1"},
        "since": {"N": str(int(account.now))},
        "execution": {"S": execution_name(name, "waiting", 1)},
    }
    return {"M": waiting}
