"""The sample work: replace this package by your own. The worker calls `perform` of work/perform.py."""
