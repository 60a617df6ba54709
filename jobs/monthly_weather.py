"""The sample Glue job: reads one month of daily weather from S3, and writes a summary to S3.

It runs as an AWS Glue Python shell job (Python 3.9), so it uses only that version's syntax, the standard library and
boto3.

Input: CSV with a header line and the columns of `COLUMNS`, one row per day, all in one month.
Output: one JSON object. It is written by a single PutObject, which is atomic, so readers never see half a result, and a
repeated run writes the same bytes again.

Bad input ends the job with exit code 1 and one sentence on its error output. The sentence names the key, the line, the
column and what was expected, so that an operator can repair the input of the failed request.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
import time
from collections import Counter
from datetime import date, datetime
from typing import Any, NamedTuple

import boto3
from botocore.exceptions import ClientError

COLUMNS = ("date", "precipitation", "temp_max", "temp_min", "wind", "weather")


class BadInput(Exception):
    """The input is not valid. The message states where and why."""


class Day(NamedTuple):
    """One row. Precipitation in millimetres, temperatures in degrees Celsius, wind in metres per second."""

    day: date
    precipitation: float
    temp_max: float
    temp_min: float
    wind: float
    weather: str


def _number(row: dict[str, str], column: str, where: str) -> float:
    text = row[column].strip()
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    # float() also accepts "nan" and "inf", which would make the month's mean wrong without an error.
    if not math.isfinite(value):
        raise BadInput(f"{where}, column {column}: expected a number, found {text!r}")
    return value


def _day(row: dict[str | None, Any], where: str) -> Day:
    cells = len([value for key, value in row.items() if key is not None and value is not None]) + len(row.get(None, []))
    if cells != len(COLUMNS):
        raise BadInput(f"{where}: expected {len(COLUMNS)} columns ({', '.join(COLUMNS)}), found {cells}")
    named: dict[str, str] = {key: value for key, value in row.items() if key is not None}
    try:
        day = datetime.strptime(named["date"].strip(), "%Y/%m/%d").date()
    except ValueError:
        raise BadInput(f"{where}, column date: expected a day as YYYY/MM/DD, found {named['date']!r}") from None
    weather = named["weather"].strip()
    if not weather:
        raise BadInput(f"{where}, column weather: expected a kind of weather such as rain or sun, found nothing")
    return Day(
        day,
        precipitation=_number(named, "precipitation", where),
        temp_max=_number(named, "temp_max", where),
        temp_min=_number(named, "temp_min", where),
        wind=_number(named, "wind", where),
        weather=weather,
    )


def read_days(body: bytes, key: str) -> list[Day]:
    """Parse the rows of an input. `key` is used in error messages. Raises BadInput."""
    try:
        text = body.decode("utf-8-sig")  # spreadsheets put a byte order mark in front
    except UnicodeDecodeError as error:
        raise BadInput(f"{key}, byte {error.start}: expected UTF-8 text") from None
    reader = csv.DictReader(io.StringIO(text, newline=""))
    header = [name.strip() for name in reader.fieldnames or []]
    if not header:
        raise BadInput(f"{key}, line 1: expected a header line ({','.join(COLUMNS)}), found an empty part")
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise BadInput(f"{key}, line 1: expected column {', '.join(missing)}, found {', '.join(header)}")
    reader.fieldnames = header
    days: list[Day] = []
    for row in reader:
        where = f"{key}, line {reader.line_num}"
        day = _day(row, where)
        if days and (day.day.year, day.day.month) != (days[0].day.year, days[0].day.month):
            raise BadInput(f"{where}, column date: expected a day of {days[0].day:%Y-%m}, found {day.day}")
        if any(day.day == earlier.day for earlier in days):
            raise BadInput(f"{where}, column date: expected each day once, found {day.day} again")
        days.append(day)
    if not days:
        raise BadInput(f"{key}, line 2: expected at least one day, found only the header line")
    return days


def summarise(days: list[Day]) -> dict[str, Any]:
    """Return the month's figures, rounded to two digits: the input has one, and sums of floats are not exact."""
    return {
        "month": f"{days[0].day:%Y-%m}",
        "days": len(days),
        "temperature_mean_c": round(math.fsum((d.temp_max + d.temp_min) / 2 for d in days) / len(days), 2),
        "temperature_min_c": min(d.temp_min for d in days),
        "temperature_max_c": max(d.temp_max for d in days),
        "precipitation_total_mm": round(math.fsum(d.precipitation for d in days), 2),
        "wind_mean_m_per_s": round(math.fsum(d.wind for d in days) / len(days), 2),
        "days_by_weather": dict(sorted(Counter(d.weather for d in days).items())),
    }


def run(s3: Any, bucket: str, input_key: str, output_key: str, execution: str | None = None) -> dict[str, Any]:
    """Read the input, write the result and return it. Raises BadInput; then nothing is written."""
    try:
        body = s3.get_object(Bucket=bucket, Key=input_key)["Body"].read()
    except ClientError as error:
        # For a missing key S3 answers AccessDenied if the role may not list the bucket, as here (API Reference,
        # GetObject).
        reason = f"{error.response['Error']['Code']}: {error.response['Error'].get('Message', '')}"
        raise BadInput(f"{input_key}: expected an object in bucket {bucket} that the job may read; {reason}") from None
    result = {**summarise(read_days(body, input_key)), "input_key": input_key, "execution": execution}
    text = json.dumps(result, indent=2) + "\n"
    s3.put_object(Bucket=bucket, Key=output_key, Body=text.encode(), ContentType="application/json")
    return result


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the arguments, and ignore unknown ones: Glue adds its own (--job-language, --scriptLocation, ...)."""
    parser = argparse.ArgumentParser(description="Sum up one month of daily weather.", allow_abbrev=False)
    parser.add_argument("--bucket", required=True, help="bucket of the input and of the result")
    parser.add_argument("--input_key", required=True, help="key of the month's CSV")
    parser.add_argument("--output_key", required=True, help="key for the JSON result")
    parser.add_argument(
        "--linger_seconds", type=float, default=0, help="seconds to wait before the work, for demonstrations"
    )
    parser.add_argument("--slotkeeper-execution", dest="execution", help="the workflow that runs this job")
    return parser.parse_known_args(argv)[0]


def main() -> None:
    arguments = parse_arguments(sys.argv[1:])
    time.sleep(arguments.linger_seconds)
    try:
        result = run(
            boto3.client("s3"), arguments.bucket, arguments.input_key, arguments.output_key, arguments.execution
        )
    except BadInput as error:
        sys.exit(str(error))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
