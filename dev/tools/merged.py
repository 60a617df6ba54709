"""Write template.yaml as JSON without YAML merges, as CloudFormation receives it, for cfn-lint and Checkov.

python -m dev.tools.merged build/merged/template.json

The template repeats shapes by YAML merges, because SAM CLI and its translator resolve them: CloudFormation, which does
not support them, receives a plain template. Checkov refuses a key that overrides a merged one. Every tool would have to
expand Fn::ForEach, and cfn-lint and the tests do not see what AWS::Include includes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from samtranslator.yaml_helper import yaml_parse

from dev.emulator.environment import ROOT


def main(to: Path) -> None:
    """Write the JSON template to `to`."""
    to.parent.mkdir(parents=True, exist_ok=True)
    template = yaml_parse((ROOT / "template.yaml").read_text(encoding="utf-8"))
    to.write_text(json.dumps(template, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
