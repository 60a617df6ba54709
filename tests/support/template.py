"""The deployed template, parsed once for all tests. It is read only: a test that changes it takes a copy."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from cfnlint.decode import cfn_yaml

FILE = Path(__file__).parents[2] / "template.yaml"


@cache
def parsed_template() -> dict[str, Any]:
    parsed: dict[str, Any] = cfn_yaml.load(str(FILE))
    return parsed
