"""The definitions that ARCHITECTURE.md names are in the files that it links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
# A linked file, and the names in backticks that follow it.
NAMED = re.findall(r"\]\(([\w/.-]+)\)((?:[\s,]+`\w+`)+)", PAGE)


@pytest.mark.parametrize(("file", "names"), NAMED)
def test_a_name_is_defined_in_the_file_that_is_linked_before_it(file: str, names: str) -> None:
    code = (ROOT / file).read_text()
    for name in re.findall(r"\w+", names):
        assert re.search(rf'(?:def|class) {name}\b|^    "{name}": {{', code, re.MULTILINE), f"{name} is not in {file}"


def test_each_path_names_its_files() -> None:
    for path in PAGE.split("## The path of ")[1:]:
        assert len([file for file, _ in NAMED if file in path]) >= 4
