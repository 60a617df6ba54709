"""getResolvedOptions of the embedded Glue, as Glue's documentation and aws-glue-libs define it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

MODULES = Path(__file__).parents[2] / "dev" / "emulator" / "engine" / "glue_modules"
UTILS = runpy.run_path(str(MODULES / "awsglue" / "utils.py"))  # outside Glue's scripts the package cannot be imported
resolve, GlueArgumentError = UTILS["getResolvedOptions"], UTILS["GlueArgumentError"]
OF_GLUE = {
    "JOB_ID": None,
    "JOB_RUN_ID": None,
    "SECURITY_CONFIGURATION": None,
    "RedshiftTempDir": None,
    "TempDir": None,
    "encryption_type": None,
    "job_bookmark_from": None,
    "job_bookmark_option": "job-bookmark-disable",
    "job_bookmark_to": None,
}
OF_A_RUN = {"JOB_RUN_ID": "jr_1", "TempDir": "s3://a/b", "RedshiftTempDir": "s3://a/b"}


@pytest.mark.parametrize(
    ("words", "wanted", "options"),
    [
        (["--day", "2026-11-22"], "day", {"day": "2026-11-22"}),
        (["--day=1", "--other", "x", "--day=2"], "day", {"day": "2"}),
        (["--slotkeeper-execution", "sales-1"], "slotkeeper-execution", {"slotkeeper_execution": "sales-1"}),
        (["--JOB_RUN_ID=jr_1", "--TempDir=s3://a/b"], "TempDir", OF_A_RUN),
    ],
)
def test_an_option_has_the_value_of_its_argument(words: list[str], wanted: str, options: dict[str, Any]) -> None:
    assert resolve(["load.py", *words], [wanted]) == OF_GLUE | options


@pytest.mark.parametrize(
    ("words", "wanted", "error", "reason"),
    [
        ([], "day", GlueArgumentError, "the following arguments are required: --day"),
        (["--day"], "day", GlueArgumentError, "argument --day: expected one argument"),
        ([], "JOB_RUN_ID", RuntimeError, "Using reserved arguments --JOB_RUN_ID"),
    ],
)
def test_a_missing_or_reserved_option_is_refused(
    words: list[str], wanted: str, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        resolve(["load.py", *words], [wanted])


def test_spark_is_refused_with_the_reason() -> None:
    with pytest.raises(ModuleNotFoundError, match="the embedded Glue runs plain Python"):
        runpy.run_path(str(MODULES / "pyspark.py"))
