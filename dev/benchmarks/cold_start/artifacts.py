"""The deployed code as `sam build` creates it, and Lambda's own packages, each in a folder."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from dev.emulator import deployment
from dev.emulator.deployment import DeploymentError
from dev.emulator.environment import ROOT
from dev.tools.invoke.function_stack import folders, logical_id

# boto3 with its dependencies (Lambda guide, "Runtime-included SDK versions"), and the runtime client with its own.
RUNTIME = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "six", "urllib3")
CLIENT = ("awslambdaric", "runtime_client", "simplejson", "snapshot_restore_py")


@dataclass(frozen=True)
class Size:
    """In bytes: the zip, the files in the container, and the compiled part of these."""

    zipped: int
    unzipped: int
    compiled: int


@dataclass(frozen=True)
class Artifacts:
    """`path`: Python's search path after the function, in Lambda's order: /opt/python, then the runtime's packages
    (Lambda guide, "Working with layers for Python Lambda functions")."""

    folder: Path
    runtime: Path

    @property
    def layer(self) -> Path:
        return self.folder / "SlotkeeperLayer"

    @property
    def path(self) -> tuple[Path, Path]:
        return self.layer / "python", self.runtime

    @property
    def bare_path(self) -> tuple[Path]:
        """Without a layer."""
        return (self.runtime,)

    def function(self, name: str) -> Path:
        return self.folder / logical_id(name)

    def sizes(self) -> dict[str, Size]:
        return {"layer": size(self.layer)} | {name: size(self.function(name)) for name in folders()}


def build(folder: Path) -> Artifacts:
    """Copy the output of `sam build` into `folder`. Raises DeploymentError with sam's messages."""
    with deployment.built(ROOT / "template.yaml", folder, lambda _: None) as build_dir:
        shutil.copytree(build_dir, folder / "sam")
    return Artifacts(folder / "sam", _runtime(folder / "runtime"))


def size(folder: Path) -> Size:
    archive = folder.with_suffix(".zip")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as written:
        for path in files:
            written.write(path, path.relative_to(folder))
    zipped = archive.stat().st_size
    archive.unlink()
    compiled = sum(path.stat().st_size for path in files if path.suffix == ".pyc")
    return Size(zipped, sum(path.stat().st_size for path in files), compiled)


def _runtime(folder: Path) -> Path:
    """A folder with this environment's copies of Lambda's packages, compiled."""
    folder.mkdir()
    for name in RUNTIME + CLIENT:
        spec = importlib.util.find_spec(name)
        if not spec or not spec.origin:
            raise DeploymentError(f"this environment has no package {name}. Run: make setup-dev")
        if spec.submodule_search_locations:
            shutil.copytree(spec.submodule_search_locations[0], folder / name)
        else:
            shutil.copy2(spec.origin, folder)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(folder)], check=True)
    return folder
