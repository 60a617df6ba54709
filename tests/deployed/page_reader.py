"""A reader of the pages, who runs their commands in a checkout of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from dev.emulator.aws import EmbeddedAws
from dev.emulator.environment import ROOT

# The project's Python, with the state in the checkout of the test.
PYTHON = f"""#!{sys.executable}
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from dev.emulator import cli
cli.STATE_DIR = Path("build/local").resolve()
cli.main(sys.argv[3:])
"""
_INSTALLED = [str(ROOT / "cli"), str(ROOT / "layers" / "slotkeeper")]
# What `make cli` installs, without two packages of this environment that botocore imports if they exist. The
# installation itself is tested in tests/command.
SLOTKEEPER = f"""#!{sys.executable}
import sys
sys.modules.update(awscrt=None, OpenSSL=None)
sys.path[:0] = {_INSTALLED}
from slotkeeper_cli.entry import main
main()
"""
CLI = {
    "slotkeeper": SLOTKEEPER,
    "python": f'#!/bin/sh\nPYTHONPATH={":".join(_INSTALLED)} exec {sys.executable} "$@"\n',
    "pip": "#!/bin/sh\n",
}


def commands(page: str, section: str) -> list[str]:
    """The blocks of commands in a section of a page."""
    text = (ROOT / "docs" / page).read_text()
    (found,) = re.findall(rf"^##+ {re.escape(section)}\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"\n\n((?:    .*\n)+)", found)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in blocks]


class PageReader:
    """A home folder with a checkout, and the variables of the reader's shell."""

    def __init__(self, home: Path) -> None:
        self.checkout = home / "slotkeeper"
        programs = {"venv/bin/python": PYTHON} | {f"cli/bin/{name}": text for name, text in CLI.items()}
        for name, text in programs.items():
            program = self.checkout / "build" / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(text)
            program.chmod(0o755)
        (self.checkout / "build" / "venv" / ".installed-local").touch()
        shutil.copy(ROOT / "Makefile", self.checkout)
        self._environment = {"HOME": str(home), "PATH": os.environ["PATH"], "MAKEFLAGS": "SETUP=:"}

    def carry_out(self, block: str) -> str:
        """Run the commands; return what they print. The next block has the variables that they export."""
        variables = self.checkout / "variables"
        ran = subprocess.run(
            ["bash", "-uc", f"{block}\nenv -0 > {variables}"],
            cwd=self.checkout,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(ran.stdout)
        self._environment = dict(each.split("=", 1) for each in variables.read_text().rstrip("\0").split("\0"))
        return ran.stdout

    def engine(self) -> EmbeddedAws:
        """The engine that the page's command has started."""
        return EmbeddedAws.attach(self.checkout / "build" / "local")
