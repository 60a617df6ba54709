"""`python -m local.worker_run`."""

from local.entry import run

run("local.worker_run.main", "python -m local.worker_run")
