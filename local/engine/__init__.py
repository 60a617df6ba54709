"""MiniStack with what it lacks for this system put in: see `local.engine.patches` for the list."""
