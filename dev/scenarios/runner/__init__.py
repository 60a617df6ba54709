"""The frame of every scenario: command line, engine, phases, live view, claims, report.json and chart."""
