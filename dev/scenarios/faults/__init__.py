"""Faults for minutes: aborts, refused calls, lost answers, killed containers, engine restarts."""
