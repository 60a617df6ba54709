"""`python -m dev.scenarios.slots`."""

from dev.emulator.entry import run

run("dev.scenarios.slots.main", "python -m dev.scenarios.slots")
