"""Cold starts: the bare handler has the same clients, and the goal."""

from __future__ import annotations

import sys
from pathlib import Path

import boto3
import pytest

from dev.benchmarks.cold_start import artifacts, bare, cold_start_benchmark
from dev.benchmarks.cold_start.start import Start

APP = """
import boto3
from botocore.config import Config
quick = boto3.client("sqs", config=Config(connect_timeout=1, retries={"mode": "standard", "total_max_attempts": 3}))
plain = boto3.client("dynamodb")
def handler(event, context):
    boto3.client("events")
"""
MADE = [
    bare.Client("sqs", {"connect_timeout": 1, "retries": {"mode": "standard", "total_max_attempts": 3}}),
    bare.Client("dynamodb", {}),
]


def _app(folder: Path, source: str) -> tuple[Path, Path]:
    folder.mkdir()
    (folder / "app.py").write_text(source)
    return folder, Path(boto3.__file__).parents[1]


def test_the_bare_handler_creates_the_clients_of_the_function(tmp_path: Path) -> None:
    made = bare.clients(_app(tmp_path / "ours", APP), {})
    assert made == MADE
    assert bare.clients(_app(tmp_path / "bare", bare.handler(made)), {}) == MADE


def test_a_function_that_cannot_be_imported_is_reported_with_its_error(tmp_path: Path) -> None:
    with pytest.raises(bare.Unusable, match="no_such_module"):
        bare.clients(_app(tmp_path / "ours", "import no_such_module"), {})


def _measured(ours: list[float], plain: list[float]) -> cold_start_benchmark.Measured:
    both = ([Start(1.0, cpu, [0.1, 0.1]) for cpu in each] for each in (ours, plain))
    return cold_start_benchmark.Measured(["sqs"], *both)


@pytest.mark.parametrize(("ours", "met"), [([1.0, 1.25, 9.0], True), ([1.0, 1.26, 1.27], False)])
def test_the_goal_is_judged_by_the_median_of_the_rounds_ratios(ours: list[float], met: bool) -> None:
    measured = _measured(ours, [1.0, 1.0, 1.0])
    assert cold_start_benchmark.goal("starter", measured).met == met
    assert measured.ratio("init_cpu") == (ours[1], min(ours), max(ours))


def test_a_size_is_that_of_the_deployed_files_with_its_compiled_part(tmp_path: Path) -> None:
    layer = tmp_path / "layer"
    (layer / "__pycache__").mkdir(parents=True)
    (layer / "slots.py").write_bytes(b"x" * 1000)
    (layer / "__pycache__" / "slots.cpython-313.pyc").write_bytes(b"y" * 300)
    size = artifacts.size(layer)
    assert (size.unzipped, size.compiled) == (1300, 300)
    assert 0 < size.zipped < 1300
    assert list(tmp_path.iterdir()) == [layer]


@pytest.mark.skipif(sys.platform != "linux", reason="the Lambda runtime's emulator is a program for Linux")
def test_the_smallest_run_starts_function_and_bare_handler_in_the_real_runtime(tmp_path: Path) -> None:
    shares: list[float] = []
    outcome = cold_start_benchmark.measure(tmp_path, lambda _, share: shares.append(share), small=True)
    assert shares == sorted(shares)
    assert [len(grid.rows) for grid in outcome.grids if grid.title.startswith(("Init", "First"))] == [1, 1]
    (starter,) = outcome.figures["functions"].values()
    assert starter["services"] == ["dynamodb", "sqs", "stepfunctions", "events"]
    assert starter["ours"][0]["init_cpu"] > 0
    assert len(starter["ours"][0]["calls"]) == 2
    assert outcome.figures["sizes"]["layer"]["compiled"] > 1_000_000
