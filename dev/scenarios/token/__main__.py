"""`python -m dev.scenarios.token`."""

from dev.emulator.entry import run

run("dev.scenarios.token.main", "python -m dev.scenarios.token")
