"""Entry point of `python -m dev.emulator.engine --token <any word>`; the token identifies the process."""

from dev.emulator.engine.launcher import main

main()
