"""`python -m local.chat_service`."""

from local.entry import run

run("local.chat_service.main", "python -m local.chat_service")
