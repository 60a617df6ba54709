"""Every row of the table of situations: the answer is right, and a refusal or a read changes nothing."""

from __future__ import annotations

import importlib
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.command.operator_account import Operator
from tests.command.situations import Names, Situation, set_clock, value_at

_MODULES = sorted(path.stem for path in Path(__file__).parent.glob("*_situations.py") if path.stem[:5] != "test_")
_LOOKS_ONLY = {"--dry-run", "--check"}
_REFUSED = {2, 3, 4}
_ROWS = {
    f"{module.removesuffix('_situations')}: {name}": row
    for module in _MODULES
    for name, row in importlib.import_module(f"tests.command.{module}").SITUATIONS.items()
}


@pytest.mark.parametrize("row", _ROWS.values(), ids=_ROWS)
def test_the_command_answers_correctly(row: Situation, operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    names = row.state(operator) or {}
    set_clock(monkeypatch, row.at)
    question = shlex.split(_named(row.question, names))
    is_kept = row.exit_code in _REFUSED or not _LOOKS_ONLY.isdisjoint(question)
    before = (operator.contents(), operator.audited()) if is_kept else None

    if row.shows:
        data = operator.run(*question, "--json").json
        shown = {path: value_at(data, path) for path in row.shows}
        assert shown == {path: _named(value, names) for path, value in row.shows.items()}

    ended = operator.run(*question)
    answer = ended.stdout + ended.stderr
    assert ended.exit_code == row.exit_code, answer
    position = 0
    for text in row.says:
        found = answer.find(_named(text, names), position)
        assert found >= 0, f"{_named(text, names)!r} is not in, or not after the texts before it:\n{answer}"
        position = found
    assert [text for text in row.never if _named(text, names) in answer] == []
    assert before is None or (operator.contents(), operator.audited()) == before


def _named(value: Any, names: Names) -> Any:
    """A text with its {values}; braces of other texts, such as JSON, stay."""
    if not isinstance(value, str):
        return value
    for name, text in names.items():
        value = value.replace(f"{{{name}}}", text)
    return value
