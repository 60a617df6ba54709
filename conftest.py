"""Setup of all tests: garbage collection, Hypothesis' profile, caches for botocore, a browser, workers of folders."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.profiles import same_examples
from tests.simulation.account import account, quick_clients

# Collections while the tests are imported find no garbage, and take a third of that time.
gc.disable()
same_examples()  # before the tests are imported; --hypothesis-profile loads another profile later

# What begins, the longest first, so that the workers end at the same time. All below such a path runs on one worker of
# xdist: most start an engine, and `roles` makes a record. A module uses only an engine of its own.
FIRST = (
    "tests/deployed/races/",
    "tests/deployed/test_pages_locally.py",
    "tests/deployed/test_[a-m]",
    "tests/deployed/test_[n-z]",
    "tests/facts/",
    "tests/deployed/test_deployments.py",
    "tests/template/roles/",
    "tests/deployed/test_local_up.py",
    "tests/deployed/test_sample_events.py",
    "tests/deployed/test_dynamodb_local.py",
)
# Modules of tests/deployed that need no deployment, or have an engine of their own.
ALONE = (
    "test_benchmark",
    "test_deployments",
    "test_docker_bridge",
    "test_dynamodb_local",
    "test_engine_deployment",
    "test_lambda_code",
    "test_launcher",
    "test_local_up",
    "test_pages_locally",
    "test_programs_only",
    "test_run_judgement",
    "test_sample_events",
    "test_scenario_runner",
    "test_whole_run",
    "test_worker_client",
)

BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

account.install()
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
    """Each path of FIRST on one worker, and each module; the searches of the simulation on the next idle one.

    FIRST comes first, then the searches, each on its own, then the rest by the number of tests: the last of many short
    ones ends when the others do. Most modules of tests/deployed share a deployment: there are two, each on a worker,
    since one worker would end a minute after the others.

    `--dist loadgroup` does not work: pytest 9.2 does not read a test's group where xdist 3.8.0 writes it.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Turns(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            name = Path(module).stem
            if module.startswith("tests/deployed/test_") and name not in ALONE:
                return FIRST[2] if name < "test_n" else FIRST[3]
            together = next((path for path in FIRST if module.startswith(path)), module)
            return nodeid if module.startswith("tests/simulation/") else together

        def _assign_work_unit(self, node: Any) -> None:
            long = (*FIRST, *(scope for scope in self.workqueue if scope.startswith("tests/simulation/")))
            slow = next((scope for scope in long if scope in self.workqueue), None)
            if slow:
                self.workqueue.move_to_end(slow, last=False)
            super()._assign_work_unit(node)

    return Turns(config, log)
