"""The token lock: all callers share one API token, and one of them refreshes it."""
