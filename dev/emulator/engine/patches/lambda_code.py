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

    def extractall(self, path: Any = None, members: Any = None, pwd: bytes | None = None) -> None:
        archive, folder = Path(str(self.filename)), Path(path)
        copy = Path(tempfile.gettempdir(), "code", hashlib.sha256(archive.read_bytes()).hexdigest())
        with _unpacking:
            if not copy.exists():
                half = copy.with_suffix(".half")  # what an error leaves of it is never run
                super().extractall(half, members, pwd)
                half.rename(copy)
        folder.rmdir()
        os.symlink(copy, folder)
