"""`python -m dev.scenarios.slots`."""

from dev.emulator.entry import run

run("dev.scenarios.slots.slot_scenario", "python -m dev.scenarios.slots")
