"""CloudFormation templates as dicts. The deployed one is parsed once for all tests and read only: copy it to change it.

cfn-lint and SAM CLI read the same content; cfn-lint's import takes ten times as long as PyYAML's C parser.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import yaml
from samtranslator.yaml_helper import intrinsics_multi_constructor

FILE = Path(__file__).parents[2] / "template.yaml"
REGION = "us-east-1"
UPLOADED = {"CodeUri", "ContentUri"}  # properties that name files, of which SAM accepts uploaded ones alone


class _Loader(yaml.CSafeLoader):
    """Reads `!Sub` and the other intrinsics as SAM CLI does."""


_Loader.add_multi_constructor("!", intrinsics_multi_constructor)


def parsed(text: str) -> dict[str, Any]:
    template: dict[str, Any] = yaml.load(text, _Loader)  # noqa: S506 - a safe loader
    return template


@cache
def parsed_template() -> dict[str, Any]:
    return parsed(FILE.read_text())


def translated(template: Mapping[str, Any], **parameters: Any) -> dict[str, Any]:
    """A copy of the template after the SAM transform, which inserts some values of parameters itself.

    The parameters that are not given have their defaults.
    """
    from samtranslator.parser.parser import Parser  # SAM takes a second to import
    from samtranslator.translator.translator import Translator

    made = json.loads(json.dumps(template))
    for resource in made["Resources"].values():
        for place in UPLOADED & resource.get("Properties", {}).keys():
            resource["Properties"][place] = "s3://bucket/key"
    values = {name: each.get("Default", "") for name, each in template["Parameters"].items()} | parameters
    translator = Translator({}, Parser(), boto_session=boto3.Session(region_name=REGION))
    answer: dict[str, Any] = json.loads(json.dumps(translator.translate(made, values)))
    return answer
