"""`python -m dev.scenarios.soak`."""

from dev.emulator.entry import run

run("dev.scenarios.soak.main", "python -m dev.scenarios.soak")
