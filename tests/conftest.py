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

quick_clients.install()  # before a test makes a session


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each folder of TURNS for one worker, the largest first; every other test for whoever has nothing to do.

    Not `--dist loadgroup`: xdist 3.8.0 writes a test's group where pytest 9.2 does not read it any more.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Turns(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            _tests, _, rest = nodeid.partition("/")
            folder = rest.partition("/")[0]
            return folder if folder in TURNS else nodeid

    return Turns(config, log)
