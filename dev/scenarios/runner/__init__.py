"""The parts that all scenarios share: command line, engine, phases, checks, report.json and chart."""
