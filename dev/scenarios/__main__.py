"""`python -m dev.scenarios`."""

from dev.emulator.entry import run

run("dev.scenarios.commands", "python -m dev.scenarios")
