"""`python -m dev.benchmarks.scale.runs KIND FIELDS`: loads or scenes, in a process that has nothing else in it.

The functions are set up by environment variables when they are imported, and write to standard output; and what one run
has left behind must not be in the time of the next. The answer is one line of JSON.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dev.benchmarks.scale import rounds
from dev.benchmarks.scale.drive import ENVIRONMENT, ROOT, Drive, Load
from dev.benchmarks.scale.meter import Meter, Output
from dev.scenarios.runner.command import CannotGoOn

_WARM = Load(processes=2, requests=100, limit=2)
_TRIES = 5
_PATHS = ("", "layers/slotkeeper", "cli")


def run(kind: str, fields: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Some "loads" or "scenes", in a process of their own. Raises CannotGoOn."""
    environment = os.environ | ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(str(ROOT / path) for path in _PATHS)}
    command = [sys.executable, "-m", "dev.benchmarks.scale.runs", kind, json.dumps(fields)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotGoOn(f"dev.benchmarks.scale.runs {kind} {fields} failed: {done.stderr[-2000:]}")
    told: list[dict[str, Any]] = json.loads(done.stdout)
    return told


def go(load: Load) -> dict[str, Any]:
    """The load, to its end, after a small one that warms everything up; more than once if it is soon over."""
    _driven(_WARM)
    tries = [_driven(load) for _ in range(min(_TRIES, max(1, 1000 // load.requests)))]
    tries.sort(key=lambda told: told["starter_seconds"])
    return tries[len(tries) // 2]


def _driven(load: Load) -> dict[str, Any]:
    before = sys.stdout
    drive = Drive(load)
    sys.stdout = Output(drive.meter)
    began = time.process_time()
    try:
        drive.go()
    finally:
        sys.stdout = before
    return asdict(load) | told(drive) | {"whole_seconds": time.process_time() - began}


def told(drive: Drive) -> dict[str, Any]:
    """What a drive has counted: of all requests, of each that had to wait (least and most), and of the janitor."""
    counts = dict(drive.meter.counts)
    janitor = counts.pop(Meter.JANITOR, Counter())
    counts.pop("", None)  # before anything was asked for
    total: Counter[str] = Counter()
    for each in counts.values():
        total.update(each)
    those = [counts[name] for name in sorted(drive.waited)]
    return {
        "simulated_seconds": drive.account.now - drive.began,
        "waited": len(those),
        "all": dict(total),
        "of_a_waiter": {
            name: [min(each[name] for each in those), max(each[name] for each in those)]
            for name in sorted({name for each in those for name in each})
        },
        "janitor": dict(janitor),
        "starter_seconds": drive.meter.cpu["starter"] / 1e9,
        "janitor_seconds": drive.meter.cpu["janitor"] / 1e9,
    }


def main(kind: str, fields: Sequence[dict[str, Any]]) -> None:
    """Answers on standard output."""
    gc.disable()  # what it costs grows with all that the simulation keeps, and a function keeps next to nothing
    measure: Callable[[dict[str, Any]], Any] = {
        "loads": lambda load: go(Load(**load)),
        "scenes": lambda scene: rounds.measure(rounds.Scene(**scene)),
        "troubles": lambda trouble: rounds.endure(**trouble),
    }[kind]
    sys.stdout.write(json.dumps([measure(each) for each in fields]))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
