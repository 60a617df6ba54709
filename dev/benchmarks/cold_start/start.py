"""One cold start in the real Lambda runtime: the duration of the init phase and of the first calls."""

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
    """Seconds.

    Args:
        init: from the request that starts the process until the process requests its first invocation.
        init_cpu: processor time of that phase.
        calls: each call; the first without the init phase.
    """

    init: float
    init_cpu: float
    calls: Sequence[float]


def start(function: Configuration, path: Sequence[Path], endpoint: str, events: Sequence[Any], scratch: Path) -> Start:
    """Start the function, call it with each event, stop it. Raises RuntimeUnavailable, FunctionFailed."""
    notes = scratch / "notes"
    notes.unlink(missing_ok=True)
    environment = dict(function.environment) | {
        "NOTES": str(notes),
        "POWERTOOLS_TRACE_DISABLED": "false",  # as in Lambda
        "POWERTOOLS_LOG_LEVEL": "INFO",
    }
    function = Configuration(
        function.name, function.folder, function.handler, function.timeout, function.memory, environment
    )
    path, program = (function.folder, *path), (*ISOLATED, str(PROBE))
    calls: list[float] = []
    # The emulator starts the process with the first call.
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
        raise RuntimeUnavailable(f"the function has requested no invocation:\n{runtime.new_output()}")
    asked, cpu = notes.read_text().splitlines()[0].split()
    return float(asked), float(cpu)
