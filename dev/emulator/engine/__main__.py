"""Entry point of `python -m dev.emulator.engine --token <any word>`; the token only marks the command line as ours."""

from dev.emulator.engine.launcher import main

main()
