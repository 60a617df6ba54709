"""The layer's Makefile, with everything in it but pip: two builds make one layer, and another Python does no harm."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dev.emulator.environment import ROOT

LAYER = ROOT / "layers" / "slotkeeper"
WITHOUT_PIP = """#!/bin/sh
[ "$2" = pip ] && {{ while [ "$1" != --target ]; do shift; done; exec mkdir -p "$2"; }}
exec {python} "$@"
"""
ANOTHER_MINOR = WITHOUT_PIP.replace("exec {python}", '[ "$1" = -c ] && exit 1; exec {python}')


def _build(folder: Path, program: str, **variables: str) -> tuple[Path, str]:
    """The layer that is made in a folder, and what is said about it. `program` is what python3.13 and python3 are;
    `variables` is what somebody has set on their machine."""
    programs, built = folder / "bin", folder / "built"
    programs.mkdir(parents=True)
    for name in ("python3.13", "python3"):
        (programs / name).write_text(program.format(python=sys.executable))
        (programs / name).chmod(0o755)
    # As `sam build` calls it.
    command = ["make", "--silent", "-C", str(LAYER), "build-SlotkeeperLayer"]
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "ARTIFACTS_DIR": str(built)} | variables
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return built, made.stdout  # `sam build` shows that, and not the rest


def _digest(layer: Path) -> str:
    files = sorted(path for path in layer.rglob("*") if path.is_file())
    content = b"".join(str(path.relative_to(layer)).encode() + path.read_bytes() for path in files)
    return hashlib.sha256(content).hexdigest()


def test_two_builds_make_the_same_layer_so_that_no_deployment_publishes_a_new_version_of_it(tmp_path: Path) -> None:
    first, _ = _build(tmp_path / "one", WITHOUT_PIP)
    of_their_own = {"PYTHONHASHSEED": "7", "PYTHONOPTIMIZE": "2", "PYTHONPYCACHEPREFIX": str(tmp_path / "cache")}
    second, _ = _build(tmp_path / "another" / "place", WITHOUT_PIP, **of_their_own)
    # By hash, unchecked: a file that notes its source's time would differ, if not in builds of the same second.
    assert {path.read_bytes()[4:8] for path in first.rglob("*.pyc")} == {b"\1\0\0\0"}
    assert _digest(first) == _digest(second)


def test_no_compiled_file_tells_where_it_was_built(tmp_path: Path) -> None:
    built, _ = _build(tmp_path, WITHOUT_PIP)
    compiled = list(built.rglob("*.pyc"))
    assert len(compiled) == len(list(built.rglob("*.py")))
    assert [path for path in compiled if str(tmp_path).encode() in path.read_bytes()] == []


@pytest.mark.parametrize(("program", "compiled"), [(WITHOUT_PIP, True), (ANOTHER_MINOR, False)])
def test_another_minor_version_builds_it_uncompiled_and_says_so(tmp_path: Path, program: str, compiled: bool) -> None:
    built, output = _build(tmp_path, program)
    assert (built / "python" / "slotkeeper" / "slots" / "protocol.py").exists()
    assert bool(list(built.rglob("*.pyc"))) == compiled
    assert ("no Python 3.13 on PATH" in output) != compiled
