"""The check for words that the project decided against."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

from dev.tools import words
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


def test_a_deleted_file_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(words, "ROOT", tmp_path)
    (tmp_path / "dev").mkdir()
    (tmp_path / FILE).write_text('[words]\n"colour" = "color"\n')
    for name in ("kept.md", "deleted.md"):
        (tmp_path / name).write_text("a colour")
    for command in (("init", "--quiet"), ("add", ".")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (tmp_path / "deleted.md").unlink()

    assert words.main([]) == 1
    assert capsys.readouterr().out == "kept.md:1: 'colour': write: color\n"
