"""The comparison with JSONata 2.0.6 (`make jsonata`) agrees, and notices wrong answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonata.jsonata import Jsonata

from slotkeeper.slots import request
from tests.workflow import reference
from tests.workflow.case import case

Output = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.fixture
def without_cases(monkeypatch: Patch) -> None:
    """Only numbers are compared."""
    monkeypatch.setattr(reference, "CASES", [])


def test_interpreter_and_cases_agree_with_the_reference(capsys: Output) -> None:
    reference.main()
    assert "0 disagreements" in capsys.readouterr().out


@pytest.mark.usefixtures("without_cases")
def test_an_interpreter_that_keeps_all_digits_disagrees(capsys: Output, monkeypatch: Patch) -> None:
    """As this project's interpreter did."""

    def string(value: Any, _prettify: Any = None) -> Any:
        return value if value is None or isinstance(value, str) else json.dumps(value, separators=(",", ":"))

    monkeypatch.setattr(Jsonata.static_frame.lookup("string"), "method", string)
    with pytest.raises(SystemExit, match="1"):
        reference.main()
    shown = capsys.readouterr().out
    assert '{% $string($n) %}\n  input      {"states": {}, "n": 1234567890123456}\n' in shown
    assert '  here       "1234567890123456"\n  JSONata    "1234567890123460"\n' in shown


@pytest.mark.usefixtures("without_cases")
def test_a_wrong_expected_value_disagrees(capsys: Output, monkeypatch: Patch) -> None:
    wrong = case("WaitForGlueRun.Assign", {"searches": 1}, {"searches": 1})
    monkeypatch.setattr(reference, "CASES", [wrong])
    with pytest.raises(SystemExit, match="1"):
        reference.main()
    assert '  here       {"searches": 1}\n  JSONata    {"searches": 2}\n' in capsys.readouterr().out + "\n"


@pytest.mark.usefixtures("without_cases")
def test_a_starter_that_accepts_sixteen_digits_disagrees(capsys: Output, monkeypatch: Patch) -> None:
    monkeypatch.setattr(request, "MAX_DIGITS", 16)
    with pytest.raises(SystemExit, match="1"):
        reference.main()
    assert "the starter accepts 9007199254740993\n  JSONata    9007199254740992\n" in capsys.readouterr().out


@pytest.mark.parametrize(("one", "other"), [(True, 1), ("1", 1), (None, reference.NO_VALUE), ([1], 1)])
def test_values_of_different_types_differ(one: Any, other: Any) -> None:
    assert not reference.same(one, other)
