"""`python -m local.soak`."""

from local.entry import run

run("local.soak.main", "python -m local.soak")
