"""The sample events of the shipped work are described, and each has an expected outcome."""

from __future__ import annotations

import re

from dev.tools.function_folders import FUNCTIONS
from functions.worker.tests.expected_events import EXPECTED

FOLDER = FUNCTIONS / "worker"


def test_every_event_has_an_expected_outcome_and_is_described() -> None:
    described = re.findall(r"^\| `(worker/\w+)` \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert described == list(EXPECTED)
    assert sorted(described) == sorted(f"worker/{path.stem}" for path in (FOLDER / "events").glob("*.json"))
