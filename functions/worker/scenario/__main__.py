"""`python -m functions.worker.scenario`."""

from dev.emulator.entry import run

run("functions.worker.scenario.worker_scenario", "python -m functions.worker.scenario")
