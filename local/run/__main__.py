"""`python -m local.run`."""

from local.entry import run

run("local.run.main", "python -m local.run")
