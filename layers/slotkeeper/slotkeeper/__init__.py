"""Slotkeeper's shared layer: the slot protocol and what the functions around it need.

`slots` is the protocol; everything else serves it. Nothing here reads the environment or makes a client at import,
except `settings` and `observability` when a function asks them to.
"""

__version__ = "0.1.0"
