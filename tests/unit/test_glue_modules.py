"""getResolvedOptions of the embedded Glue, as Glue's documentation and aws-glue-libs define it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = ROOT / "dev" / "emulator" / "engine" / "glue_modules"
UTILS = runpy.run_path(str(MODULES / "awsglue" / "utils.py"))  # outside Glue's scripts the package cannot be imported
resolve, GlueArgumentError = UTILS["getResolvedOptions"], UTILS["GlueArgumentError"]
DEPLOYED = ("functions", "layers", "cli")


@pytest.mark.parametrize("words", [["--day", "2026-11-22"], ["--day=2026-11-22"], ["--other", "x", "--day=2026-11-22"]])
def test_an_option_has_the_value_of_its_argument(words: list[str]) -> None:
    assert resolve(["load.py", *words], ["day"])["day"] == "2026-11-22"


def test_a_hyphen_of_a_name_becomes_an_underscore() -> None:
    assert resolve(["load.py", "--slotkeeper-execution", "sales-1"], ["slotkeeper-execution"])[
        "slotkeeper_execution"
    ] == ("sales-1")


def test_the_last_of_two_values_counts() -> None:
    assert resolve(["load.py", "--day=1", "--day=2"], ["day"])["day"] == "2"


@pytest.mark.parametrize(
    ("words", "reason"),
    [([], "the following arguments are required: --day"), (["--day"], "argument --day: expected one argument")],
)
def test_a_missing_option_or_value_is_refused(words: list[str], reason: str) -> None:
    with pytest.raises(GlueArgumentError, match=reason):
        resolve(["load.py", *words], ["day"])


@pytest.mark.parametrize("name", ["job-bookmark-option", "JOB_RUN_ID", "encryption-type"])
def test_a_reserved_option_is_refused(name: str) -> None:
    with pytest.raises(RuntimeError, match=f"Using reserved arguments --{name}"):
        resolve(["load.py"], [name])


def test_the_options_of_glue_are_always_in_the_result() -> None:
    assert resolve(["load.py", "--JOB_RUN_ID=jr_1", "--TempDir=s3://a/b"], ["TempDir"]) == {
        "JOB_ID": None,
        "JOB_RUN_ID": "jr_1",
        "SECURITY_CONFIGURATION": None,
        "TempDir": "s3://a/b",
        "RedshiftTempDir": "s3://a/b",
        "encryption_type": None,
        "job_bookmark_from": None,
        "job_bookmark_option": "job-bookmark-disable",
        "job_bookmark_to": None,
    }


def test_spark_is_refused_with_the_reason() -> None:
    with pytest.raises(ModuleNotFoundError, match="the embedded Glue runs plain Python"):
        runpy.run_path(str(MODULES / "pyspark.py"))


def test_nothing_that_is_deployed_imports_the_modules_of_glue_scripts() -> None:
    root = Path(__file__).parents[2]
    sources = [path for folder in DEPLOYED for path in (root / folder).rglob("*.py")]
    assert [str(path) for path in sources if "awsglue" in path.read_text() or "glue_modules" in path.read_text()] == []
