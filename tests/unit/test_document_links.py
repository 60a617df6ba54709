"""What the documents name exists: the target of each link, each page, each definition and each resource."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.template.parsing import parsed_template

ROOT = Path(__file__).parents[2]
PLACES = ("*.md", "docs/*.md", "[a-z]*/README.md", "dev/*/README.md", "functions/*/README.md")
PAGES = sorted({page for place in PLACES for page in ROOT.glob(place)})
# A linked file of ARCHITECTURE.md, and the names in backticks that follow it.
DEFINED = re.findall(r"\]\(([\w/.-]+)\)((?:[\s,]+`\w+`)+)", (ROOT / "ARCHITECTURE.md").read_text())

of_each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def _outside_code(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def _anchors(page: Path) -> set[str]:
    """The anchors of GitHub: headings in lower case, with hyphens for blanks and without punctuation."""
    headings = re.findall(r"^#+ (.*)$", _outside_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@of_each_page
def test_every_link_of_a_page_has_a_target(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", _outside_code(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            assert anchor in _anchors(file), target


def test_the_list_of_documents_has_every_page() -> None:
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "README.md").read_text()))
    assert listed == {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}


@of_each_page
def test_every_diagram_names_existing_resources(page: Path) -> None:
    for diagram in re.findall(r"^```mermaid\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        for name in re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)*(?:Queue|Table)\b", diagram):
            assert name in parsed_template()["Resources"], name


@pytest.mark.parametrize(("file", "names"), DEFINED)
def test_a_name_of_the_architecture_is_defined_in_the_file_that_is_linked_before_it(file: str, names: str) -> None:
    code = (ROOT / file).read_text()
    for name in re.findall(r"\w+", names):
        assert re.search(rf'(?:def|class) {name}\b|^    "{name}": {{', code, re.MULTILINE), f"{name} is not in {file}"
