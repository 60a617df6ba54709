"""The scenes of slots, as fixtures. In a module with another `scene`, `aborted` has that one."""

from __future__ import annotations

import pytest

from tests.unit.janitor_scene import JanitorScene
from tests.unit.slots.queue_scene import QueueScene


@pytest.fixture
def scene(request: pytest.FixtureRequest) -> JanitorScene | QueueScene:
    """The queue of a process with the module's LIMIT; in a module without one, the janitor's scene."""
    limit = getattr(request.module, "LIMIT", None)
    return JanitorScene(request.getfixturevalue("account")) if limit is None else QueueScene(limit)


@pytest.fixture
def aborted[Scene: JanitorScene](scene: Scene) -> Scene:
    """The scene after its execution was started and aborted."""
    scene.start()
    scene.abort()
    return scene
