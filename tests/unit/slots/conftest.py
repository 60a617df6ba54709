"""The janitor's scene, as a fixture."""

from __future__ import annotations

import pytest

from tests.unit.conftest import Account
from tests.unit.janitor_scene import JanitorScene


@pytest.fixture
def scene(account: Account) -> JanitorScene:
    return JanitorScene(account)


@pytest.fixture
def aborted(scene: JanitorScene) -> JanitorScene:
    """The scene after its execution was started and aborted."""
    scene.start()
    scene.abort()
    return scene
