"""The built packages are complete. The embedded AWS has more packages than Lambda, and would not miss one."""

from __future__ import annotations

import importlib.util
import json
import marshal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest

from dev.emulator.environment import ROOT
from tests.deployed.deployed_stack import DeployedStack

# Lambda guide, "Runtime-included SDK versions": boto3 and its dependencies.
IN_THE_RUNTIME = ["boto3", "botocore", "s3transfer", "jmespath", "dateutil", "six.py", "urllib3"]
BUILT = ROOT / "build" / "sam"


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """A folder with only the packages of Lambda's runtime."""
    installed = Path(boto3.__file__).parents[1]
    for name in IN_THE_RUNTIME:
        (tmp_path / name).symlink_to(installed / name)
    return tmp_path


@pytest.fixture
def variables(slotkeeper: Callable[..., Any], tmp_path: Path) -> dict[str, dict[str, str]]:
    """The functions' variables as deployed."""
    slotkeeper("stack", "env", "--output", "env.json")
    deployed: dict[str, dict[str, str]] = json.loads((tmp_path / "env.json").read_text())
    return deployed


# Imports each function in a separate process, which has boto3 already. Prints the error of one that does not load,
# and each file of the layer that Python compiles for it.
LOAD = """
import json, os, sys, traceback
from importlib.machinery import SourceFileLoader

sys.path.insert(0, {runtime!r})
import boto3

assert "site-packages" not in boto3.__file__
compile_it = SourceFileLoader.source_to_code

def note(self, data, path, **options):
    if path.startswith({layer!r}):
        print(path, "was compiled")
    return compile_it(self, data, path, **options)

SourceFileLoader.source_to_code = note
for folder, environment in json.loads(sys.argv[1]).items():
    if os.fork():
        os.wait()
        continue
    os.environ |= environment
    sys.path[:0] = [folder, {layer!r}]
    try:
        import app
        print(folder, "loads")
    except BaseException:
        traceback.print_exc()
    os._exit(0)
"""


def test_each_function_loads_with_the_layer_and_the_runtime_alone(
    variables: dict[str, dict[str, str]], runtime: Path
) -> None:
    # The chatbot of this stack also refreshes the token, so it has the refresher's variables. The worker has the tables
    # of the retry report.
    others = variables["ChatbotFunction"] | variables["WorkerFunction"]
    others |= {"FAILURE_TOPIC_ARN": "arn:aws:sns:us-east-1:123456789012:failures", "STACK_NAME": "slotkeeper"}
    environments = {
        str(folder): {"AWS_DEFAULT_REGION": "us-east-1", **variables.get(folder.name, others)}
        for folder in sorted(BUILT.glob("*Function"))
    }
    assert len(environments) == 8
    code = LOAD.format(runtime=str(runtime), layer=str(BUILT / "SlotkeeperLayer" / "python"))
    # -I and -S: neither the environment's packages nor the project's folders. -B: the build is not changed. -u: a fork
    # does not print what its parent has printed.
    command = [sys.executable, "-I", "-S", "-B", "-u", "-c", code, json.dumps(environments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.stderr, ran.stdout.splitlines()) == ("", [f"{folder} loads" for folder in environments])


def test_the_layer_is_small_and_pure_python(stack: DeployedStack) -> None:
    layer = BUILT / "SlotkeeperLayer"
    files = [path for path in layer.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 10_500_000
    assert [path for path in files if path.suffix == ".so"] == []
    assert not (layer / "python" / "botocore").exists()


def test_the_layer_is_compiled_for_a_read_only_folder(stack: DeployedStack) -> None:
    layer = BUILT / "SlotkeeperLayer"
    sources = list(layer.rglob("*.py"))
    for source in sources:
        compiled = Path(importlib.util.cache_from_source(str(source))).read_bytes()
        # The magic number of 3.13, then: by hash, unchecked ("Cached bytecode invalidation", The Python Language
        # Reference), since unpacked files have other times than those that were compiled.
        assert compiled[:8] == importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little"), source
        assert compiled[8:16] == importlib.util.source_hash(source.read_bytes()), source
        assert marshal.loads(compiled[16:]).co_filename == f"/opt/{source.relative_to(layer)}"  # noqa: S302
    assert len(sources) > 100
