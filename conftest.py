"""Setup of all tests: garbage collection, Hypothesis' profile, caches for botocore, folders that run on one worker."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from tests.support import quick_clients, simulated_tables
from tests.support.profiles import same_examples

# Collections while the tests are imported find no garbage, and take a third of that time.
gc.disable()
same_examples()  # before the tests are imported; --hypothesis-profile loads another profile later

# The tests of each of these folders run on one worker of xdist. Most start an engine, and `least_privilege` makes a
# record: each worker would do it again. The first three take longest, so they begin.
TURNS = ("e2e", "races", "conformance", "least_privilege", "benchmarks", "runtime")
# Modules of these folders that use only an engine of their own: each runs on any one worker, the longest first.
ALONE = (
    "tests/e2e/test_runs.py",
    "tests/e2e/test_pages_locally.py",
    "tests/e2e/test_deployments.py",
    "tests/engine/test_cli.py",
    "tests/engine/test_dynamodb_local.py",
)
# Each module of these folders, and of functions/<function>/tests, runs on one worker, so that its tests share what it
# prepares.
TOGETHER = ("cli", "mutants", "own_work", "proof", "scenarios", "template", "unit", "workflow")

simulated_tables.install()
quick_clients.install()  # before a test creates a session


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Collect seldom, and leave what the imports created out of each collection."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each folder of TURNS and module of ALONE or TOGETHER on one worker; other tests on the next idle one.

    The slow ones come first: TURNS and ALONE in their order, then the rest by the number of tests.

    `--dist loadgroup` does not work: pytest 9.2 does not read a test's group where xdist 3.8.0 writes it.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Turns(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            module, folder = nodeid.partition("::")[0], nodeid.split("/")[1]
            if module in ALONE or nodeid.startswith("functions/"):
                return module
            return folder if folder in TURNS else module if folder in TOGETHER else nodeid

        def _assign_work_unit(self, node: Any) -> None:
            slow = next((scope for scope in (*TURNS, *ALONE) if scope in self.workqueue), None)
            if slow:
                self.workqueue.move_to_end(slow, last=False)
            super()._assign_work_unit(node)

    return Turns(config, log)
