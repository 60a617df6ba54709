"""One cold start in the real Lambda runtime: how long until it asks for a call, and how long the first calls take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.benchmarks.cold_start.bare import ISOLATED
from dev.tools.invoke.lambda_runtime import Configuration, Runtime, RuntimeUnavailable

PROBE = Path(__file__).with_name("probe.py")


@dataclass(frozen=True)
class Start:
    """In seconds.

    Args:
        init: from the request that has the emulator start it until it asks for its first call.
        init_cpu: what the processor worked for it till then.
        calls: each call; the first without the init phase.
    """

    init: float
    init_cpu: float
    calls: Sequence[float]


def start(function: Configuration, path: Sequence[Path], endpoint: str, events: Sequence[Any], scratch: Path) -> Start:
    """Starts it, calls it with each event, ends it. Raises RuntimeUnavailable, FunctionFailed."""
    notes = scratch / "notes"
    notes.unlink(missing_ok=True)
    environment = dict(function.environment) | {
        "NOTES": str(notes),
        "POWERTOOLS_TRACE_DISABLED": "false",  # in Lambda nobody switches it off
        "POWERTOOLS_LOG_LEVEL": "INFO",
    }
    function = Configuration(
        function.name, function.folder, function.handler, function.timeout, function.memory, environment
    )
    path, program = (function.folder, *path), (*ISOLATED, str(PROBE))
    calls: list[float] = []
    # The emulator starts it with the first call, not before.
    with Runtime(function, endpoint, scratch / "log", path=path, program=program) as runtime:
        for event in events:
            started = time.monotonic()
            runtime.invoke(event)
            calls.append(time.monotonic() - started)
            if len(calls) == 1:
                asked, cpu = _first(notes, runtime)
                init = asked - started
                calls[0] -= init
    return Start(init, cpu, calls)


def _first(notes: Path, runtime: Runtime) -> tuple[float, float]:
    if not notes.exists():
        raise RuntimeUnavailable(f"it has not asked for a call:\n{runtime.new_output()}")
    asked, cpu = notes.read_text().splitlines()[0].split()
    return float(asked), float(cpu)
