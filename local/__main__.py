"""`python -m local`."""

from local.entry import run

run("local.cli", "python -m local")
