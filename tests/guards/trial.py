"""The trial of one mutant: applied to a copy of the tree, and judged by its guards."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self
from xml.etree import ElementTree

from tests.guards.copies import replaced
from tests.guards.mutant_catalogue import Mutant, Stale

# Guards take seconds, or minutes if they wait for an event that never happens (tests/waiting.py). A longer run
# hangs, even on a busy machine.
SECONDS = 900.0
LONGEST_MESSAGE = 300  # characters
# Imported once for all trials of a tree: packages that many guards use.
PACKAGES = (
    "aws_lambda_powertools.metrics",
    "aws_lambda_powertools.tracing",
    "boto3",
    "fastjsonschema",
    "hypothesis.strategies",
    "jsonschema",
    "moto.dynamodb.responses",
    "moto.events.responses",
    "moto.s3.responses",
    "moto.sqs.responses",
    "moto.stepfunctions.responses",
    "rich.console",
    "typer",
    "yaml",
)

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


class Trials:
    """Runs tests of a copy of the tree, each time with the copy's current code. Use it in a `with` block."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # guards need no plugin, and loading them takes seconds
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("warm_pytest.py"), *PACKAGES],
            cwd=tree,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def judge(self, mutant: Mutant) -> Verdict:
        """Apply a mutant to the tree, run its guards until one fails, and restore the tree."""
        try:
            texts = mutant.mutated(self.tree)
        except Stale as error:
            return Verdict(mutant.name, "stale", message=str(error))
        with replaced(self.tree, texts):
            return self.first_failure(mutant.name, mutant.guards)

    def first_failure(self, name: str, tests: Iterable[str], seconds: float = SECONDS) -> Verdict:
        """Run tests until the first one fails."""
        started = time.monotonic()
        report, output = self.tree.with_suffix(".xml"), self.tree.with_suffix(".txt")
        report.unlink(missing_ok=True)
        options = ["-x", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(output), seconds, [*options, *tests]]) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        if code == -signal.SIGALRM:
            return Verdict(name, "broken", message=f"the tests did not end within {seconds:.0f} s", seconds=seconds)
        status, test, message = _read(code, output, report)
        return Verdict(name, status, test, " ".join(message.split())[:LONGEST_MESSAGE], time.monotonic() - started)


def _read(code: int, output: Path, report: Path) -> tuple[Status, str, str]:
    if code == 0:
        return "survived", "", ""
    cases = ElementTree.parse(report).iter("testcase") if report.exists() else ()  # noqa: S314 - pytest wrote it
    for case in cases:
        test = f"{case.get('classname')}::{case.get('name')}"
        for failed in case.iter("failure"):
            message = failed.get("message", "")
            return "broken" if _INVALID.match(message) else "caught", test, message
        for error in case.iter("error"):  # a fixture fails, or the module cannot be imported
            return "broken", test, f"{error.get('message')}: {(error.text or '').strip().splitlines()[-1]}"
    return "broken", "", f"pytest ended with {code}: {output.read_text()[-LONGEST_MESSAGE:]}"
