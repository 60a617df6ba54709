"""Setup of all tests: garbage collection, Hypothesis' profile, caches for botocore, a browser, workers of folders."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import quick_clients, simulated_tables
from tests.support.profiles import same_examples

# Collections while the tests are imported find no garbage, and take a third of that time.
gc.disable()
same_examples()  # before the tests are imported; --hypothesis-profile loads another profile later

# The modules of tests/e2e from this one on have a second worker and deployment: a worker for all of them would end a
# minute after the others.
SECOND_PART = "tests/e2e/test_operator_command.py"
# What begins, the longest first, so that the workers end at the same time. The tests of a folder run on one worker of
# xdist: most start an engine, and `least_privilege` makes a record. A module uses only an engine of its own.
FIRST = (
    "races",
    "tests/e2e/test_pages_locally.py",
    "e2e",
    SECOND_PART,
    "conformance",
    "tests/e2e/test_deployments.py",
    "least_privilege",
    "tests/engine/test_cli.py",
    "benchmarks",
    "runtime",
    "tests/engine/test_dynamodb_local.py",
)
# Each module of these folders, and of functions/<function>/tests, runs on one worker, so that its tests share what it
# prepares.
TOGETHER = ("cli", "mutants", "package", "proof", "scenarios", "template", "unit", "workflow")

BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

simulated_tables.install()
quick_clients.install()  # before a test creates a session


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real browser. Without one, the test is skipped, except in CI."""
    playwright = pytest.importorskip("playwright.sync_api")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(f"no browser: .ci/run installs one of {', '.join(BROWSERS)}")
        pytest.skip(f"no browser: install one of {', '.join(BROWSERS)}")
    with playwright.sync_playwright() as driver:
        # Chromium's sandbox does not start as root, as in CI. The browser opens the tests' own pages alone.
        opened = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Collect seldom, and leave what the imports created out of each collection."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each folder and module of FIRST and module of TOGETHER on one worker; other tests on the next idle one.

    FIRST comes first, then the searches of the simulation, each on its own, then the rest by the number of tests: the
    last of many short ones ends when the others do.

    `--dist loadgroup` does not work: pytest 9.2 does not read a test's group where xdist 3.8.0 writes it.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Turns(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            module, folder = nodeid.partition("::")[0], nodeid.split("/")[1]
            if module in FIRST or nodeid.startswith("functions/"):
                return module
            if folder == "e2e" and module > SECOND_PART:
                return SECOND_PART
            return folder if folder in FIRST else module if folder in TOGETHER else nodeid

        def _assign_work_unit(self, node: Any) -> None:
            long = (*FIRST, *(scope for scope in self.workqueue if scope.startswith("tests/simulation/")))
            slow = next((scope for scope in long if scope in self.workqueue), None)
            if slow:
                self.workqueue.move_to_end(slow, last=False)
            super()._assign_work_unit(node)

    return Turns(config, log)
