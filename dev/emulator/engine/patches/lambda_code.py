"""All environments of a function run from one copy of its code and of its layers.

AWS: "Lambda Developer Guide: Understanding the Lambda execution environment lifecycle" and "Packaging your layer
content": code is mounted at /var/task and layers under /opt, the same for every environment, and only /tmp can be
written.
MiniStack unpacks both anew for each environment. That is 700 files of this system's layer; fifty environments at once
wait for the disk more than for anything else, and whoever stops the engine waits for it again.
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
    """Give the module that starts the workers a `zipfile` of its own."""
    replace(lambda_runtime, "zipfile", _with_shared_copies)


def _with_shared_copies(original: types.ModuleType) -> types.ModuleType:
    module = types.ModuleType(original.__name__)
    vars(module).update(vars(original) | {"ZipFile": SharedCopy})
    return module


class SharedCopy(zipfile.ZipFile):
    """`extractall` into an empty folder makes it a link to the one copy of this archive's content."""

    @cached_property
    def copy(self) -> Path:
        """Where the content is, once it is unpacked."""
        content = Path(str(self.filename)).read_bytes()
        return Path(tempfile.gettempdir(), "code", hashlib.sha256(content).hexdigest())

    def namelist(self) -> list[str]:
        """The members' names; none if the content is unpacked. MiniStack checks the path of each, 700 for the layer."""
        return [] if self.copy.exists() else super().namelist()

    def extractall(self, path: Any = None, members: Any = None, pwd: bytes | None = None) -> None:
        with _unpacking:
            if not self.copy.exists():
                half = self.copy.with_suffix(".half")  # what an error leaves of it is never run
                super().extractall(half, members, pwd)
                half.rename(self.copy)
        folder = Path(path)
        folder.rmdir()
        os.symlink(self.copy, folder)
