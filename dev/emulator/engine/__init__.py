"""MiniStack with what it lacks for this system put in: see `dev.emulator.engine.patches` for the list."""
