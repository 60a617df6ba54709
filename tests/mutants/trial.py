"""The trial of one mutant: applied to a copy of the tree, and judged by its guards."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from tests.mutants.copies import replaced
from tests.mutants.mutant_catalogue import Mutant, Stale

# Guards take seconds, or minutes if they wait for an event that never happens (tests/support/waiting.py). A longer run
# hangs, even on a busy machine.
SECONDS = 900.0
LONGEST_MESSAGE = 300  # characters

# A mutant that is no valid code makes every test fail. DynamoDB refuses, for example, an unused value.
_INVALID = re.compile(
    r"(NameError|UnboundLocalError|ImportError|ModuleNotFoundError|SyntaxError)\b"
    r"|TypeError: .*(unexpected keyword argument|required positional argument|positional arguments? but)"
    r"|botocore\S*ClientError: .*\(ValidationException\)"
)

Status = Literal["caught", "survived", "broken", "stale"]


@dataclass(frozen=True)
class Verdict:
    """The outcome of a mutant's trial.

    caught    `test` failed with `message`
    survived  every guard passed
    broken    nothing is proved: the mutant is not valid code, a guard does not exist, or the guards did not end
    stale     the mutant does not apply to the code
    """

    mutant: str
    status: Status
    test: str = ""
    message: str = ""
    seconds: float = 0.0


def judge(mutant: Mutant, tree: Path) -> Verdict:
    """Apply a mutant to the tree, run its guards until one fails, and restore the tree."""
    try:
        texts = mutant.mutated(tree)
    except Stale as error:
        return Verdict(mutant.name, "stale", message=str(error))
    with replaced(tree, texts):
        return first_failure(mutant.name, mutant.guards, tree)


def first_failure(name: str, tests: Iterable[str], tree: Path, seconds: float = SECONDS) -> Verdict:
    """Run tests of a tree with that tree's code until the first one fails."""
    started = time.monotonic()
    report = tree.with_suffix(".xml")
    report.unlink(missing_ok=True)
    options = ["-x", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # guards need no plugin, and loading them takes seconds
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Verdict(name, "broken", message=f"the tests did not end within {seconds:.0f} s", seconds=seconds)
    status, test, message = _read(ran, report)
    return Verdict(name, status, test, " ".join(message.split())[:LONGEST_MESSAGE], time.monotonic() - started)


def _read(ran: subprocess.CompletedProcess[str], report: Path) -> tuple[Status, str, str]:
    if ran.returncode == 0:
        return "survived", "", ""
    cases = ElementTree.parse(report).iter("testcase") if report.exists() else ()  # noqa: S314 - pytest wrote it
    for case in cases:
        test = f"{case.get('classname')}::{case.get('name')}"
        for failed in case.iter("failure"):
            message = failed.get("message", "")
            return "broken" if _INVALID.match(message) else "caught", test, message
        for error in case.iter("error"):  # a fixture fails, or the module cannot be imported
            return "broken", test, f"{error.get('message')}: {(error.text or '').strip().splitlines()[-1]}"
    return "broken", "", f"pytest ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-LONGEST_MESSAGE:]}"
