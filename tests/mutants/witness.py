"""A pytest plugin that writes the first failure to a file as a JSON object, which trial.py reads.

`is_a_verdict` is false if the failure proves nothing about the tests: a mutant that cannot be imported, or uses an
undefined name, makes every test suite fail.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

LONGEST_MESSAGE = 300  # characters

_SIGNATURE = re.compile(r"unexpected keyword argument|required positional argument|positional arguments? but")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--witness", type=Path, required=True, help="file for the first failure")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Witness(config.getoption("--witness")))


class Witness:
    def __init__(self, path: Path) -> None:
        self._path = path

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and call.excinfo is not None:
            is_a_verdict = report.when == "call" and not _is_the_mutants_own(call.excinfo.value)
            self._write(item.nodeid, call.excinfo.exconly(), is_a_verdict)
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(report.nodeid, f"could not be collected: {report.longreprtext.splitlines()[-1]}", False)

    def _write(self, test: str, text: str, is_a_verdict: bool) -> None:
        if not self._path.exists():
            message = " ".join(text.split())[:LONGEST_MESSAGE]
            self._path.write_text(json.dumps({"test": test, "message": message, "is_a_verdict": is_a_verdict}))


def _is_the_mutants_own(error: BaseException) -> bool:
    """Whether an error shows that the mutant is invalid code rather than wrong behavior."""
    if isinstance(error, ClientError):
        # DynamoDB refuses the expression, for example because of an unused value.
        return error.response["Error"]["Code"] == "ValidationException"
    if isinstance(error, TypeError):
        return _SIGNATURE.search(str(error)) is not None
    return isinstance(error, NameError | ImportError | SyntaxError)
