"""What to install if an extra of pyproject.toml is missing. Imports the standard library alone, as the script needs."""

import shlex
import sys


def how_to_install(extra: str) -> str:
    """How to add an extra to the environment of this command. No package index has Slotkeeper."""
    return f"in the checkout, {shlex.quote(sys.executable)} -m pip install '.[{extra}]'"
