"""The sample job's script, on inputs small enough to check."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from jobs import monthly_weather as job
from tests.module_time import replace_time

SCRIPT = Path(job.__file__)
HEADER = "date,precipitation,temp_max,temp_min,wind,weather"
DAYS = """2012/01/01,0.5,12.0,5.0,4.0,drizzle
2012/01/02,10.1,10.0,-3.0,2.0,rain
2012/01/03,0.0,6.0,1.0,3.3,rain
"""
GOOD = f"{HEADER}\n{DAYS}"


class Bucket:
    """The part of an S3 client that the job uses, with one bucket."""

    def __init__(self, **objects: str) -> None:
        self.objects = {key.replace("__", "/"): body.encode() for key, body in objects.items()}
        self.written: list[dict[str, Any]] = []

    def get_object(self, **request: Any) -> dict[str, Any]:
        if request["Key"] not in self.objects:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "Access Denied"}}, "GetObject")
        return {"Body": io.BytesIO(self.objects[request["Key"]])}

    def put_object(self, **request: Any) -> None:
        self.written.append(request)


def test_the_months_figures_are_computed_from_all_rows() -> None:
    s3 = Bucket(input__part=GOOD)
    result = job.run(s3, "data", "input/part", "output/part", "sample-1")
    assert result == {
        "month": "2012-01",
        "days": 3,
        "temperature_mean_c": 5.17,  # (8.5 + 3.5 + 3.5) / 3
        "temperature_min_c": -3.0,
        "temperature_max_c": 12.0,
        "precipitation_total_mm": 10.6,
        "wind_mean_m_per_s": 3.1,
        "days_by_weather": {"drizzle": 1, "rain": 2},
        "input_key": "input/part",
        "execution": "sample-1",
    }


def test_the_result_is_one_object_in_one_write() -> None:
    s3 = Bucket(input__part=GOOD)
    result = job.run(s3, "data", "input/part", "output/part")
    assert [(w["Bucket"], w["Key"]) for w in s3.written] == [("data", "output/part")]
    assert json.loads(s3.written[0]["Body"]) == result


def test_columns_in_another_order_with_extra_spaces_and_a_byte_order_mark_are_read() -> None:
    text = "\ufeffweather, date,temp_min,temp_max,wind,precipitation\r\nsun,2012/02/01, 1.0 ,3.0,2.0,0.0\r\n"
    days = job.read_days(text.encode(), "part")
    assert [(d.weather, d.temp_min, d.temp_max) for d in days] == [("sun", 1.0, 3.0)]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (GOOD.replace("12.0", "n/a"), "part, line 2, column temp_max: expected a number, found 'n/a'"),
        (GOOD.replace("12.0", "nan"), "part, line 2, column temp_max: expected a number, found 'nan'"),
        (GOOD.replace("4.0", "inf"), "part, line 2, column wind: expected a number, found 'inf'"),
        (GOOD.replace("-3.0", ""), "part, line 3, column temp_min: expected a number, found ''"),
        (GOOD.replace("temp_max,", "tmax,"), "part, line 1: expected column temp_max, found date, precipitation, tmax"),
        (GOOD.replace(",4.0", ""), "part, line 2: expected 6 columns"),
        (GOOD.replace("4.0,", "4.0,5.0,"), "part, line 2: expected 6 columns"),
        (GOOD.replace("2012/01/02", "2012-01-02"), "part, line 3, column date: expected a day as YYYY/MM/DD"),
        (GOOD.replace("2012/01/02", "2012/02/02"), "part, line 3, column date: expected a day of 2012-01"),
        (GOOD.replace("2012/01/02", "2012/01/01"), "part, line 3, column date: expected each day once"),
        (GOOD.replace("drizzle", " "), "part, line 2, column weather: expected a kind of weather"),
        ("", "part, line 1: expected a header line"),
        (HEADER, "part, line 2: expected at least one day, found only the header line"),
    ],
)
def test_bad_input_names_the_part_the_line_the_column_and_what_was_expected(body: str, message: str) -> None:
    s3 = Bucket(part=body)
    with pytest.raises(job.BadInput, match="part") as caught:
        job.run(s3, "data", "part", "output")
    assert str(caught.value).startswith(message)
    assert s3.written == []


def test_bytes_that_are_not_utf8_are_bad_input() -> None:
    with pytest.raises(job.BadInput, match="part, byte 1: expected UTF-8 text"):
        job.read_days(b"d\xff", "part")


def test_a_part_that_does_not_exist_is_bad_input() -> None:
    with pytest.raises(
        job.BadInput, match="input/none: expected an object in bucket data that the job may read; AccessDenied"
    ):
        job.run(Bucket(), "data", "input/none", "output")


def test_arguments_that_glue_adds_are_ignored() -> None:
    ours = ["--bucket", "b", "--input_key", "i", "--output_key", "o", "--slotkeeper-execution", "e"]
    arguments = job.parse_arguments([*ours, "--job-language", "python", "--input", "x"])
    assert (arguments.bucket, arguments.input_key, arguments.output_key, arguments.execution) == ("b", "i", "o", "e")


def test_a_missing_argument_ends_the_script_with_its_name() -> None:
    ended = subprocess.run([sys.executable, str(SCRIPT), "--bucket", "b"], capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "--input_key" in ended.stderr


def test_bad_input_ends_the_script_with_the_message_and_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = Bucket(part=GOOD.replace("12.0", "n/a"))
    monkeypatch.setattr(boto3, "client", {"s3": damaged}.__getitem__)
    monkeypatch.setattr(sys, "argv", ["job", "--bucket", "b", "--input_key", "part", "--output_key", "o"])
    with pytest.raises(SystemExit, match="part, line 2, column temp_max: expected a number"):
        job.main()


def test_linger_seconds_delays_the_first_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make smoke` uses it to observe a run."""
    happened: list[Any] = []
    bucket = Bucket(part=GOOD)
    replace_time(monkeypatch, job, sleep=happened.append)
    monkeypatch.setattr(boto3, "client", lambda _service: happened.append("reads") or bucket)
    monkeypatch.setattr(sys, "argv", ["job", "--bucket", "b", "--input_key", "part", "--output_key", "o"])
    job.main()
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--linger_seconds", "2.5"])
    job.main()
    assert happened == [0, "reads", 2.5, "reads"]


def test_the_script_needs_only_the_syntax_and_modules_of_glues_python_3_9() -> None:
    tree = ast.parse(SCRIPT.read_text(), feature_version=(3, 9))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= set(sys.stdlib_module_names) | {"boto3", "botocore"}
