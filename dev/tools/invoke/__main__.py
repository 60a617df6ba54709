"""`python -m dev.tools.invoke`."""

from dev.emulator.entry import run

run("dev.tools.invoke.main", "python -m dev.tools.invoke")
