"""What the tests of every folder share: one copy of botocore's descriptions of AWS, and who takes turns with whom."""

from __future__ import annotations

import functools

import botocore.session
import pytest

# The tests of such a folder take turns, on one worker of xdist's, beside those of all other folders. Each has an engine
# that takes time to start, and every worker would start it; all the deployments of `e2e` come from one build folder.
TURNS = ("e2e", "engine", "races", "runtime")

# Every test has boto3 sessions of its own, and each would parse the descriptions of its services anew: most of the time
# of a test with a client or two. They are only read, as by the clients of one session.
botocore.session.create_loader = functools.cache(botocore.session.create_loader)


@pytest.hookimpl(tryfirst=True)  # xdist writes the group into the tests' names
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tells xdist, if it is there, which tests take turns."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    folder = config.rootpath / "tests"
    for item in items:
        if item.path.is_relative_to(folder) and (first := item.path.relative_to(folder).parts[0]) in TURNS:
            item.add_marker(pytest.mark.xdist_group(first))
