"""Setup of all tests: Hypothesis' profile, caches for botocore, and the folders that run on one worker."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import quick_clients
from tests.support.profiles import same_examples

same_examples()  # before the tests are imported; --hypothesis-profile loads another profile later

# The tests of each of these folders run on one worker of xdist. Most start an engine, and `least_privilege` makes a
# record: each worker would do it again.
TURNS = ("benchmarks", "e2e", "engine", "least_privilege", "races", "runtime")
# Modules of these folders that use only an engine of their own: each runs on any one worker.
ALONE = (
    "tests/e2e/test_flow_deployments.py",
    "tests/e2e/test_guided.py",
    "tests/e2e/test_own_job.py",
    "tests/e2e/test_run_chatbot.py",
    "tests/e2e/test_run_worker.py",
    "tests/engine/test_cli.py",
    "tests/engine/test_dynamodb_local.py",
    "tests/engine/test_restarts.py",
    "tests/engine/test_stack_deletion.py",
)

quick_clients.install()  # before a test creates a session


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each folder of TURNS and module of ALONE on one worker, the largest first; other tests on the next idle one.

    `--dist loadgroup` does not work: pytest 9.2 does not read a test's group where xdist 3.8.0 writes it.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Turns(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            module, folder = nodeid.partition("::")[0], nodeid.split("/")[1]
            if module in ALONE:
                return module
            return folder if folder in TURNS else nodeid

    return Turns(config, log)
