"""`make check` runs the fast tests of the changed files, and all fast tests for a file that several folders test."""

from __future__ import annotations

import pytest

from dev.tools.check import FAST, targets_of

LAYER = "layers/slotkeeper/slotkeeper"
TABLE = [
    ([f"{LAYER}/slots/protocol.py"], ["tests/proof/slots", "tests/unit/slots"]),
    (["template.yaml"], ["tests/template"]),
    (["tests/unit/token/test_token_lock.py"], ["tests/unit/token/test_token_lock.py"]),
    (["tests/cli/conftest.py"], ["tests/cli"]),
    (["tests/cli/test_that_was_removed.py"], []),
    (["functions/starter/app.py"], sorted(FAST)),
    (["tests/support/boundary.py"], sorted(FAST)),
    (["tests/races/conftest.py"], []),
    ([f"{LAYER}/events.py", f"{LAYER}/slots/protocol.py", "README.md"], sorted([*FAST, "tests/proof/slots"])),
]


@pytest.mark.parametrize(("changed", "tests"), TABLE)
def test_changed_files_select_their_tests(changed: list[str], tests: list[str]) -> None:
    assert targets_of(changed) == tests
