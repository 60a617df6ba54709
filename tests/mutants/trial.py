"""The trial of one mutant: applied to a copy, judged by its guards and, if these pass, by all other quick tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.mutants.copies import copy_with
from tests.mutants.mutant_catalogue import Mutant, Stale

# Guards take seconds, or minutes if they wait for an event that never happens (tests/support/waiting.py). A longer run
# hangs, even on a busy machine.
GUARDS_SECONDS = 900.0
REST_SECONDS = 3600.0
# Without tests/mutants: every change of the code makes the catalogue's own tests fail.
IGNORED = ("tests/engine", "tests/e2e", "tests/mutants", "tests/own_work")
REST = ("tests", "functions", *(f"--ignore-glob={folder}" for folder in IGNORED))

# Some of the other tests need its options. It costs time, so guards run without it; properties need no plugin.
HYPOTHESIS = ("-p", "hypothesispytest")

_servers = threading.local()

Status = Literal["caught", "survived", "broken", "hung", "stale"]


@dataclass(frozen=True)
class Verdict:
    """The outcome of a mutant's trial.

    caught    `test` failed with `message`; `by_guard`: the catalogue names it as a guard
    survived  every test passed
    broken    the failure proves nothing about the tests: the mutant is not valid code, or a guard does not exist
    hung      the tests did not end
    stale     the mutant does not apply to the code
    """

    mutant: str
    status: Status
    seconds: float = 0.0
    test: str = ""
    message: str = ""
    by_guard: bool = True


@dataclass(frozen=True)
class Run:
    """One run of pytest. `failed` is the first test that failed, or empty."""

    passed: bool
    failed: str = ""
    message: str = ""
    is_a_verdict: bool = False
    hung: bool = False


class Server:
    """A process that runs pytest: see pytest_server.py. It does one run at a time."""

    def __init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        # The tree's pyproject.toml makes its code importable; this makes the plugin importable.
        environment["PYTHONPATH"] = str(Path(__file__).parent)
        # Plugins that guards do not need take half of the time.
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        script = [sys.executable, str(Path(__file__).with_name("pytest_server.py"))]
        self._process = subprocess.Popen(
            script, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, tree: Path, arguments: Iterable[str], log: Path, seconds: float) -> int | None:
        """Return pytest's exit code; None if it did not end within `seconds`."""
        assert self._process.stdin
        assert self._process.stdout
        asked = {"tree": str(tree), "arguments": list(arguments), "log": str(log), "seconds": seconds}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        code: int | None = json.loads(self._process.stdout.readline())
        return code


def _server() -> Server:
    """The server of this thread. It ends with this process."""
    if not hasattr(_servers, "server"):
        _servers.server = Server()
    server: Server = _servers.server
    return server


def green_without(base: Path, mutants: Iterable[Mutant], jobs: int) -> Run:
    """Run all guards without a mutant. Returns the first failed run, or one that passed."""
    guards = sorted({guard for mutant in mutants for guard in mutant.guards})
    share = -(-len(guards) // jobs)
    with ThreadPoolExecutor(jobs) as pool:
        runs = pool.map(
            lambda first: pytest(base, guards[first : first + share], REST_SECONDS, base.with_name(f"base-{first}")),
            range(0, len(guards), share),
        )
    return next((run for run in runs if not run.passed), Run(True))


def judge(mutant: Mutant, base: Path, folder: Path, rest: Iterable[str] = REST) -> Verdict:
    """Try a mutant in a copy of `base`. The copy is made in `folder` and stays there."""
    started = time.monotonic()

    def verdict(status: Status, run: Run, by_guard: bool = True) -> Verdict:
        return Verdict(mutant.name, status, time.monotonic() - started, run.failed, run.message, by_guard)

    copy = folder / mutant.name
    try:
        copy_with(mutant, base, copy)
    except Stale as error:
        return verdict("stale", Run(False, message=str(error)))
    run = pytest(copy, mutant.guards, GUARDS_SECONDS)
    by_guard = not run.passed
    if run.passed:
        run = pytest(copy, [*HYPOTHESIS, *rest], REST_SECONDS)
    if run.passed:
        return verdict("survived", run, by_guard)
    if run.hung:
        return verdict("hung", run, by_guard)
    if not by_guard and run.failed and not pytest(base, [*HYPOTHESIS, run.failed], GUARDS_SECONDS, copy).passed:
        return verdict("broken", Run(False, run.failed, "it fails without the mutant too"), by_guard)
    return verdict("caught" if run.is_a_verdict else "broken", run, by_guard)


def pytest(tree: Path, arguments: Iterable[str], seconds: float, output: Path | None = None) -> Run:
    """Run tests of a tree with that tree's code until the first one fails.

    Args:
        output: path of the output files, without .log and .json; by default the tree's.
    """
    output = output or tree
    log_file, witness = (output.with_name(f"{output.name}{end}") for end in (".log", ".json"))
    witness.unlink(missing_ok=True)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "witness", f"--witness={witness}"]
    code = _server().run(tree, [*options, *arguments], log_file, seconds)
    if code is None:
        return Run(False, message=f"the tests did not end within {seconds:.0f} s", hung=True)
    if code == 0:
        return Run(True)
    if not witness.exists():  # pytest did not start, for example because an argument names no test
        lines = [line for line in log_file.read_text().splitlines() if line.strip()]
        return Run(False, message=f"pytest ended with {code}: {' '.join(lines[-3:])[:300]}")
    first = json.loads(witness.read_text())
    return Run(False, first["test"], first["message"], first["is_a_verdict"])
