"""`python -m dev.emulator`."""

from dev.emulator.entry import run

run("dev.emulator.cli", "python -m dev.emulator")
