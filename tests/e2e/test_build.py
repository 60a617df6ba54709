"""What is built is enough: the embedded AWS has more packages than Lambda, so it would not notice a missing one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import boto3
import pytest

from local.environment import ROOT
from tests.e2e.stack import Stack

# Lambda guide, "Runtime-included SDK versions": boto3 and what it needs.
IN_THE_RUNTIME = ["boto3", "botocore", "s3transfer", "jmespath", "dateutil", "six.py", "urllib3"]
BUILT = ROOT / "build" / "sam"
FUNCTIONS = [
    "StarterFunction",
    "JanitorFunction",
    "ProcessRegistrarFunction",
    "ChatbotFunction",
    "TokenRefresherFunction",
    "WorkerFunction",
]


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """A folder with the packages that Lambda's own Python brings, and no others."""
    installed = Path(boto3.__file__).parents[1]
    for name in IN_THE_RUNTIME:
        (tmp_path / name).symlink_to(installed / name)
    return tmp_path


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_loads_with_the_layer_and_the_runtime_alone(stack: Stack, runtime: Path, function: str) -> None:
    path = [str(BUILT / function), str(BUILT / "SlotkeeperLayer" / "python"), str(runtime)]
    sample = json.loads((ROOT / "events" / "env.json").read_text())
    environment = {"AWS_DEFAULT_REGION": "us-east-1", **sample.get(function, sample["StarterFunction"])}
    code = f"import sys; sys.path[:0] = {path!r}; import app, boto3; assert 'site-packages' not in boto3.__file__"
    # -I and -S: neither the environment's packages nor the project's folders.
    command = [sys.executable, "-I", "-S", "-c", code]
    ran = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_the_layer_is_small_and_pure_python(stack: Stack) -> None:
    layer = BUILT / "SlotkeeperLayer"
    files = [path for path in layer.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 10_000_000
    assert [path for path in files if path.suffix == ".so"] == []
    assert not (layer / "python" / "botocore").exists()
