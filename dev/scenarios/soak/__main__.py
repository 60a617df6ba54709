"""`python -m dev.scenarios.soak`."""

from dev.emulator.entry import run

run("dev.scenarios.soak.soak_scenario", "python -m dev.scenarios.soak")
