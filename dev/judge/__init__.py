"""Judges of recorded histories, which the simulation, the races and the scenarios share."""
