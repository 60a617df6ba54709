"""The conditions of a measurement: machine, versions, date."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from dev.emulator.environment import ROOT

PACKAGES = ("boto3", "botocore", "aws-lambda-powertools", "ministack", "awslambdaric", "aws-sam-cli")
GIB = 2**30


def about() -> dict[str, str]:
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "revision": _revision(),
        "processor": f"{_processor()}, {processors()} logical processors",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / GIB:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "packages": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
    }


def processors() -> int:
    return os.cpu_count() or 1


def load() -> float:
    """The average number of processes that ran or were ready to run in the last minute."""
    return os.getloadavg()[0]


def _processor() -> str:
    listed = Path("/proc/cpuinfo")  # Linux only; otherwise the kind of processor
    lines = listed.read_text().splitlines() if listed.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "-"


def _revision() -> str:
    """Of the tree, with a + if it has changes. "-" without git."""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "-"
    return answer.stdout.strip()
