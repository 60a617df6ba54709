"""MiniStack with the behavior that it lacks for this system: `dev.emulator.engine.patches` has the list."""
