"""`python -m dev.scenarios.worker`."""

from dev.emulator.entry import run

run("dev.scenarios.worker.worker_scenario", "python -m dev.scenarios.worker")
