"""The check of words that the project decided against."""

from __future__ import annotations

import pytest

from dev.tools.words import findings

WORDS = {"news": "event", "set (it )?aside": "dead-letter"}


def test_an_unwanted_word_is_reported_with_its_place_and_the_preferred_term() -> None:
    assert list(findings("docs/a.md", "fine\nThe News come.\n", WORDS)) == ["docs/a.md:2: 'News': write: event"]


@pytest.mark.parametrize("text", ["set aside", "set it\n  aside", "# set\n# aside"])
def test_a_phrase_is_reported_across_line_breaks(text: str) -> None:
    assert len(list(findings("a.py", text, WORDS))) == 1


@pytest.mark.parametrize("text", ["newsletter, offset aside", "AWS News Blog  # words: allowed, a title of AWS"])
def test_part_of_a_word_and_an_allowed_line_are_not_reported(text: str) -> None:
    assert list(findings("a.py", text, WORDS)) == []
