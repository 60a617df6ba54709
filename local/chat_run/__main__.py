"""`python -m local.chat_run`."""

from local.entry import run

run("local.chat_run.main", "python -m local.chat_run")
