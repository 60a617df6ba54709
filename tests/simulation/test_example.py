"""The example of README.md runs, with the results on that page; a random schedule of it is shrunk to five events."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation import scheduling, shrinking
from tests.simulation.world_runs import first_violation

PAGE = (Path(__file__).parent / "README.md").read_text()
SAFE, UNSAFE = "issued = :seen", "issued >= :seen"


@pytest.fixture(scope="module")
def page() -> Any:
    """The definitions of the page."""
    defined: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(code, defined)
    return SimpleNamespace(**defined)


def test_the_world_of_the_page_breaks_only_without_its_condition(page: Any) -> None:
    assert first_violation(lambda: page.NumbersWorld(SAFE), faults=1) == ("", "")
    name, history = first_violation(lambda: page.NumbersWorld(UNSAFE), faults=0)
    assert name == "N1"
    assert history.index("update_item") > history.rindex("get_item"), history  # both read, then both write


def test_the_step_of_the_page_breaks_it_with_its_condition(page: Any) -> None:
    assert first_violation(lambda: page.ResetWorld(SAFE), faults=0)[0] == "N1"


def test_a_schedule_that_breaks_is_shrunk_to_what_breaks_it(page: Any) -> None:
    paths = (scheduling.path(lambda _: page.ResetWorld(SAFE), seed) for seed in range(50))
    broken = [(path, violation) for path, violation in paths if violation is not None]
    path, violation = max(broken, key=lambda each: len(each[0]))
    shrunk = shrinking.shrink(lambda: page.ResetWorld(SAFE), path, violation.name)
    assert len(path) > len(shrunk)
    assert sorted(choice.kind for choice in shrunk) == ["call"] * 4 + ["reset"]
    assert not any(choice.is_fault for choice in shrunk)
    assert shrinking.history(page.ResetWorld(SAFE), shrunk)[-1] == f"broken: {violation}"
