"""Slotkeeper's shared layer: slots, the token lock, the chatbot and retries, one package each.

No module creates a client at import. Only `observability` and `cold_start` act at import; `settings` reads the
environment when a function calls it.
"""

__version__ = "0.1.0"
