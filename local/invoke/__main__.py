"""`python -m local.invoke`."""

from local.entry import run

run("local.invoke.main", "python -m local.invoke")
