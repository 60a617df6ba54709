"""The check for words that the project decided against."""

from __future__ import annotations

import tomllib

import pytest

from dev.tools.words import ROOT, findings
from dev.tools.words import WORDS as FILE

WORDS = {"colour": "color", "turn (it )?off": "disable"}


def test_an_unwanted_word_is_reported_with_its_place_and_the_preferred_term() -> None:
    assert list(findings("docs/a.md", "fine\nThe Colour is red.\n", WORDS)) == ["docs/a.md:2: 'Colour': write: color"]


@pytest.mark.parametrize("text", ["turn off", "turn it\n  off", "# turn\n# off"])
def test_a_phrase_is_reported_across_line_breaks(text: str) -> None:
    assert len(list(findings("a.py", text, WORDS))) == 1


@pytest.mark.parametrize("text", ["colourless, return off", "Colour  # words: allowed, a name"])
def test_part_of_a_word_and_an_allowed_line_are_not_reported(text: str) -> None:
    assert list(findings("a.py", text, WORDS)) == []


def test_the_words_of_the_project_are_in_lower_case_as_the_search_expects() -> None:
    words = tomllib.loads((ROOT / FILE).read_text())["words"]
    assert [word for word in words if word != word.lower()] == []
