"""The script `slotkeeper`, which pip installs with and without the packages of the operator command."""

from __future__ import annotations

import shlex
import sys

# The packages of the extra `cli` in pyproject.toml, and click, which typer brings.
EXTRA = ("typer", "rich", "click")


def main() -> None:
    """Run the operator command. Without its packages, print what to install on stderr and exit with 1."""
    try:
        from slotkeeper_cli.app import main as run  # noqa: PLC0415 - it may fail
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRA:
            raise  # a package of the library is missing, or the installation is incomplete
        instead = f"only the library is installed: {how_to_install('cli')}"
        print(f"slotkeeper: the command needs {missing}, and {instead}", file=sys.stderr)
        sys.exit(1)
    run()


def how_to_install(extra: str) -> str:
    """How to add an extra of pyproject.toml to the environment of this command. No package index has Slotkeeper."""
    return f"in the checkout, {shlex.quote(sys.executable)} -m pip install '.[{extra}]'"
