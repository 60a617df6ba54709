"""What the tests of every folder share: Hypothesis' profile, botocore's descriptions of AWS, and who takes turns."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import quick_clients
from tests.support.profiles import same_examples

same_examples()  # before a test is read; --hypothesis-profile loads another profile after this

# The tests of such a folder take turns, on one worker of xdist's, beside those of all other folders. Each has an engine
# that takes time to start, or (`least_privilege`) a record that takes time to make, and every worker would; and all the
# deployments of `e2e` come from one build folder.
TURNS = ("benchmarks", "e2e", "engine", "least_privilege", "races", "runtime")
# Modules of such a folder that use an engine of their own alone: each of them takes turns with none but itself.
ALONE = (
    "tests/e2e/test_flow_deployments.py",
    "tests/e2e/test_guided.py",
    "tests/e2e/test_run_chatbot.py",
    "tests/e2e/test_run_worker.py",
    "tests/engine/test_cli.py",
    "tests/engine/test_dynamodb_local.py",
    "tests/engine/test_restarts.py",
    "tests/engine/test_stack_deletion.py",
)

quick_clients.install()  # before a test makes a session


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each folder of TURNS for one worker, the largest first; every other test for whoever has nothing to do.

    Not `--dist loadgroup`: xdist 3.8.0 writes a test's group where pytest 9.2 does not read it any more.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Turns(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            module, folder = nodeid.partition("::")[0], nodeid.split("/")[1]
            if module in ALONE:
                return module
            return folder if folder in TURNS else nodeid

    return Turns(config, log)
