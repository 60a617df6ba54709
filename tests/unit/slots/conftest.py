"""The janitor's scene, as a fixture. In a module with another `scene`, `aborted` has that one."""

from __future__ import annotations

import pytest

from tests.unit.conftest import Account
from tests.unit.janitor_scene import JanitorScene


@pytest.fixture
def scene(account: Account) -> JanitorScene:
    return JanitorScene(account)


@pytest.fixture
def aborted[Scene: JanitorScene](scene: Scene) -> Scene:
    """The scene after its execution was started and aborted."""
    scene.start()
    scene.abort()
    return scene
