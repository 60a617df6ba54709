"""`Try your job here` of docs/your-glue-job.md, in a shell: a script outside the checkout runs under a limit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dev.emulator.aws import EmbeddedAws, EngineError
from dev.emulator.environment import ROOT
from tests.support.waiting import wait_until

PAGE = (ROOT / "docs" / "your-glue-job.md").read_text()
(SECTION,) = re.findall(r"^## Try your job here\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
(SCRIPT,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
TRY, REDRIVE, SHOW = re.findall(r"\n\n((?:    .*\n)+)", SECTION)
(EXPORT,) = re.findall(r"^    (export .*\n)", TRY, re.MULTILINE)
# The project's Python, with the state in the checkout of the test.
PYTHON = f"""#!{sys.executable}
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from dev.emulator import cli
cli.STATE_DIR = Path("build/local").resolve()
cli.main(sys.argv[3:])
"""
SLOTKEEPER = f"""#!{sys.executable}
import sys
sys.path[:0] = {[str(ROOT / "cli"), str(ROOT / "layers" / "slotkeeper")]!r}
from slotkeeper_cli.app import main
main()
"""


class Reader:
    """A reader of the page: a home folder with the job's script, and a checkout."""

    def __init__(self, home: Path) -> None:
        self.checkout = home / "slotkeeper"
        self.script = home / "sales" / "load.py"
        self.script.parent.mkdir(parents=True)
        self.script.write_text(SCRIPT)
        programs = {"venv/bin/python": PYTHON, "cli/bin/slotkeeper": SLOTKEEPER, "cli/bin/pip": "#!/bin/sh\n"}
        for name, text in programs.items():
            program = self.checkout / "build" / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(text)
            program.chmod(0o755)
        (self.checkout / "build" / "venv" / ".installed-local").touch()
        shutil.copy(ROOT / "Makefile", self.checkout)
        self._environment = {"HOME": str(home), "PATH": os.environ["PATH"], "MAKEFLAGS": "SETUP=:"}

    def carry_out(self, block: str) -> str:
        """Run the commands; return what they print."""
        command = ["bash", "-uc", block]
        return subprocess.run(
            command,
            cwd=self.checkout,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        ).stdout

    def engine(self) -> EmbeddedAws:
        """The engine that the page's command has started."""
        return EmbeddedAws.attach(self.checkout / "build" / "local")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    yield made
    with suppress(EngineError):
        made.engine().stop()


def test_a_job_of_ones_own_runs_fails_is_corrected_and_redriven(reader: Reader) -> None:
    shown = reader.carry_out(TRY)
    print(shown)
    aws = reader.engine()
    assert aws.outputs["GlueJobName"] == "load"
    assert f"Glue job load runs {reader.script}" in shown
    eu = re.search(r"sent: eu  (\S+)  SUCCEEDED", shown)
    assert eu, shown
    logs = reader.checkout / "build" / "local" / "glue"
    assert (logs / f"{eu[1]}.output.log").read_text() == f"{eu[1]}: 2026-11-22\n"
    assert re.search(r"sent: us  \S+  FAILED", shown), shown
    assert "GlueArgumentError: the following arguments are required: --day" in shown

    reader.script.write_text("print('without a day')\n")
    print(reader.carry_out(EXPORT + REDRIVE))

    def states() -> list[str]:
        return [run["JobRunState"] for run in aws.client("glue").get_job_runs(JobName="load")["JobRuns"]]

    wait_until(lambda: states() == ["SUCCEEDED", "FAILED", "SUCCEEDED"], "the second attempt to succeed")
    shown = reader.carry_out(EXPORT + SHOW)
    print(shown)
    assert "attempt 2: succeeded" in shown
    with pytest.raises(EngineError):
        reader.engine()
