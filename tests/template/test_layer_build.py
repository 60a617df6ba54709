"""The layer's Makefile: pip takes only what has a listed hash. Without pip: builds are reproducible, and another Python
version builds a working layer."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dev.emulator.environment import ROOT

LAYER = ROOT / "layers" / "slotkeeper"
WITH_PIP = """#!/bin/sh
exec {python} "$@"
"""
WITHOUT_PIP = """#!/bin/sh
[ "$2" = pip ] && {{ while [ "$1" != --target ]; do shift; done; exec mkdir -p "$2"; }}
exec {python} "$@"
"""
ANOTHER_MINOR = WITHOUT_PIP.replace("exec {python}", '[ "$1" = -c ] && exit 1; exec {python}')


def _build(folder: Path, program: str, **variables: str) -> tuple[Path, str]:
    """The layer built in a folder, and the build's output. The arguments are those of `_make`."""
    made = _make(folder, program, **variables)
    assert made.returncode == 0, made.stderr
    return folder / "built", made.stdout  # the output that `sam build` shows


def _make(folder: Path, program: str, layer: Path = LAYER, **variables: str) -> subprocess.CompletedProcess[str]:
    """Build a layer in a folder.

    `program`: the script that python3.13 and python3 run; `variables`: the environment.
    """
    programs, built = folder / "bin", folder / "built"
    programs.mkdir(parents=True)
    for name in ("python3.13", "python3"):
        (programs / name).write_text(program.format(python=sys.executable))
        (programs / name).chmod(0o755)
    # The call of `sam build`.
    command = ["make", "--silent", "-C", str(layer), "build-SlotkeeperLayer"]
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "ARTIFACTS_DIR": str(built)} | variables
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def _digest(layer: Path) -> str:
    files = sorted(path for path in layer.rglob("*") if path.is_file())
    content = b"".join(str(path.relative_to(layer)).encode() + path.read_bytes() for path in files)
    return hashlib.sha256(content).hexdigest()


def test_pip_installs_only_a_package_whose_hash_is_listed(tmp_path: Path) -> None:
    layer, wheel = tmp_path / "layer", tmp_path / "thing-1-py3-none-any.whl"
    (layer / "slotkeeper").mkdir(parents=True)
    shutil.copy(LAYER / "Makefile", layer)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("thing.py", "")
        archive.writestr("thing-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1\n")
        archive.writestr("thing-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("thing-1.dist-info/RECORD", "")
    pin, digest = "thing==1", hashlib.sha256(wheel.read_bytes()).hexdigest()
    local = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    built = {}
    for name, line in {
        "listed": f"{pin} --hash=sha256:{digest}",
        "other": f"{pin} --hash=sha256:{0:064}",
        "none": pin,
    }.items():
        (layer / "requirements.txt").write_text(line)
        made = _make(tmp_path / name, WITH_PIP, layer, **local)
        built[name] = (made.returncode == 0, (tmp_path / name / "built" / "python" / "thing.py").exists())
        assert (name == "listed") != (digest in made.stderr)  # pip prints the hash that a new line needs
    assert built == {"listed": (True, True), "other": (False, False), "none": (False, False)}


def test_two_builds_make_the_same_layer_so_that_a_deployment_publishes_no_new_version(tmp_path: Path) -> None:
    first, _ = _build(tmp_path / "one", WITHOUT_PIP)
    of_their_own = {"PYTHONHASHSEED": "7", "PYTHONOPTIMIZE": "2", "PYTHONPYCACHEPREFIX": str(tmp_path / "cache")}
    second, _ = _build(tmp_path / "another" / "place", WITHOUT_PIP, **of_their_own)
    # Compiled with unchecked hashes: a file with its source's time would differ between builds of different seconds.
    assert {path.read_bytes()[4:8] for path in first.rglob("*.pyc")} == {b"\1\0\0\0"}
    assert _digest(first) == _digest(second)


def test_no_compiled_file_contains_the_path_of_its_build(tmp_path: Path) -> None:
    built, _ = _build(tmp_path, WITHOUT_PIP)
    compiled = list(built.rglob("*.pyc"))
    assert len(compiled) == len(list(built.rglob("*.py")))
    assert [path for path in compiled if str(tmp_path).encode() in path.read_bytes()] == []


@pytest.mark.parametrize(("program", "compiled"), [(WITHOUT_PIP, True), (ANOTHER_MINOR, False)])
def test_another_minor_version_builds_it_uncompiled_and_reports_that(
    tmp_path: Path, program: str, compiled: bool
) -> None:
    built, output = _build(tmp_path, program)
    assert (built / "python" / "slotkeeper" / "slots" / "protocol.py").exists()
    assert bool(list(built.rglob("*.pyc"))) == compiled
    assert ("no Python 3.13 on PATH" in output) != compiled
