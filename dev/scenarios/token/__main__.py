"""`python -m dev.scenarios.token`."""

from dev.emulator.entry import run

run("dev.scenarios.token.token_scenario", "python -m dev.scenarios.token")
