"""Runs of the deployed stack on the emulator, each with a report and a chart."""
