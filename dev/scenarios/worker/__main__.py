"""`python -m dev.scenarios.worker`."""

from dev.emulator.entry import run

run("dev.scenarios.worker.main", "python -m dev.scenarios.worker")
