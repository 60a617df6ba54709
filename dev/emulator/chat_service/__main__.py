"""`python -m dev.emulator.chat_service`."""

from dev.emulator.entry import run

run("dev.emulator.chat_service.main", "python -m dev.emulator.chat_service")
