"""All environments of a function share one copy of its code and layers.

AWS: "Lambda Developer Guide: Understanding the Lambda execution environment lifecycle" and "Packaging your layer
content": code is mounted at /var/task and layers under /opt, the same for every environment, and only /tmp can be
written.
MiniStack unpacks both again for each environment. This system's layer has 700 files; fifty simultaneous environments
wait mostly for the disk, and so does a stop of the engine.
"""

import hashlib
import os
import tempfile
import threading
import types
import zipfile
from functools import cached_property
from pathlib import Path
from typing import Any

from dev.emulator.engine.emulator import lambda_runtime, replace

_unpacking = threading.Lock()


def apply() -> None:
    """Replace `zipfile` in the module that starts the workers."""
    replace(lambda_runtime, "zipfile", _with_shared_copies)


def _with_shared_copies(original: types.ModuleType) -> types.ModuleType:
    module = types.ModuleType(original.__name__)
    vars(module).update(vars(original) | {"ZipFile": SharedCopy})
    return module


class SharedCopy(zipfile.ZipFile):
    """Its `extractall` replaces the empty target folder with a link to the one copy of the archive's content."""

    @cached_property
    def copy(self) -> Path:
        """The folder of the unpacked content."""
        content = Path(str(self.filename)).read_bytes()
        return Path(tempfile.gettempdir(), "code", hashlib.sha256(content).hexdigest())

    def namelist(self) -> list[str]:
        """The members' names; none if the content is unpacked. MiniStack checks the path of each, 700 for the layer."""
        return [] if self.copy.exists() else super().namelist()

    def extractall(self, path: Any = None, members: Any = None, pwd: bytes | None = None) -> None:
        with _unpacking:
            if not self.copy.exists():
                half = self.copy.with_suffix(".half")  # renamed when complete: an error leaves no incomplete copy
                super().extractall(half, members, pwd)
                half.rename(self.copy)
        folder = Path(path)
        folder.rmdir()
        os.symlink(self.copy, folder)
