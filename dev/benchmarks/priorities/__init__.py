"""Priorities and weights, in virtual time: the wait of urgent requests, and the use of a limit in DPUs."""
