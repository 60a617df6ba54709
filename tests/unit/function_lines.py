"""Log lines and metrics of a function."""

from __future__ import annotations

import json
from typing import Any

import pytest

Lines = list[dict[str, Any]]


def written(capsys: pytest.CaptureFixture[str]) -> Lines:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]


def counted(output: pytest.CaptureFixture[str] | Lines) -> dict[str, float]:
    """The metrics of the stack, with their sums."""
    lines = [line for line in (output if isinstance(output, list) else written(output)) if "_aws" in line]
    lines = [line for line in lines if "process" not in line]
    names = {each["Name"] for line in lines for of in line["_aws"]["CloudWatchMetrics"] for each in of["Metrics"]}
    return {name: sum(sum(line.get(name, [])) for line in lines) for name in names - {"ColdStart"}}
