"""One embedded AWS for the directory, with the template that users deploy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from local.aws import EmbeddedAws
from tests.e2e.stack import GRACE, LOOK_GAP, Stack


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    state_dir: Path = tmp_path_factory.mktemp("embedded-aws")
    # A finished run keeps its place in Glue for a while, which shows only at a job that is full.
    environment = {"SLOTKEEPER_GLUE_PLACE_HELD_SECONDS": "2"}
    with EmbeddedAws.start(state_dir, faults=True, environment=environment) as aws:
        # The schedule is left out of the way: a test says itself when the janitor goes round.
        aws.deploy({"JanitorSchedule": "rate(1 day)", "GraceSeconds": str(GRACE), "LookGapSeconds": str(LOOK_GAP)})
        yield Stack(aws)


@pytest.fixture
def stack(deployed: Stack) -> Iterator[Stack]:
    deployed.faults.clear()
    yield deployed
    deployed.faults.clear()
