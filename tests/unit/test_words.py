"""The check for words that the project decided against finds them, also across a line break."""

from __future__ import annotations

import pytest

from dev.tools.words import findings

WORDS = {"colour": "color", "turn (it )?off": "disable"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("fine\nThe Colour is red.\n", ["docs/a.md:2: 'Colour': write: color"]),
        ("# turn\n# off", ["docs/a.md:1: 'turn off': write: disable"]),
        ("colourless, return off", []),
        ("Colour  # words: allowed, a name", []),
    ],
)
def test_an_unwanted_word_is_reported_with_its_place_and_the_preferred_term(text: str, found: list[str]) -> None:
    assert list(findings("docs/a.md", text, WORDS)) == found
