"""The parts that all scenarios share: command line, engine, phases, claims, report.json and chart."""
