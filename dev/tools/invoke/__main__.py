"""`python -m dev.tools.invoke`."""

from dev.emulator.entry import run

run("dev.tools.invoke.invoke_command", "python -m dev.tools.invoke")
