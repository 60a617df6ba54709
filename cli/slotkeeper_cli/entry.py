"""The script `slotkeeper`, which pip installs with and without the packages of the operator command."""

from __future__ import annotations

import sys

from slotkeeper_cli.extras import how_to_install

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
