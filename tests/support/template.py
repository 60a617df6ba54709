"""CloudFormation templates as dicts. The deployed one is parsed once for all tests and read only: copy it to change it.

cfn-lint and SAM CLI read the same content; cfn-lint's import takes ten times as long as PyYAML's C parser.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from samtranslator.yaml_helper import intrinsics_multi_constructor

FILE = Path(__file__).parents[2] / "template.yaml"


class _Loader(yaml.CSafeLoader):
    """Reads `!Sub` and the other intrinsics as SAM CLI does."""


_Loader.add_multi_constructor("!", intrinsics_multi_constructor)


def parsed(text: str) -> dict[str, Any]:
    template: dict[str, Any] = yaml.load(text, _Loader)  # noqa: S506 - a safe loader
    return template


@cache
def parsed_template() -> dict[str, Any]:
    return parsed(FILE.read_text())
