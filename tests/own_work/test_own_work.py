"""With own work instead of the shipped work, a part of what `make own-work` runs: events, documents and template."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.own_work.replaced_tree import replace, run, run_make

TESTS = (
    "functions",
    "tests/mutants/test_mutant_catalogue.py",
    "tests/template/test_worker_template.py",
    "tests/unit/test_correctness_page.py",
    "tests/unit/test_document_links.py",
    "tests/unit/test_imports.py",
)


@pytest.fixture(scope="module")
def replaced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The copy with own work."""
    folder = tmp_path_factory.mktemp("own-work")
    replace(folder)
    return folder


def test_the_projects_tests_pass_with_own_work(replaced: Path) -> None:
    run(replaced, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS)


@pytest.mark.skipif(sys.platform != "linux", reason="the Lambda runtime's emulator is a program for Linux")
def test_an_event_of_any_work_has_an_outcome_and_no_traceback(replaced: Path) -> None:
    output = run_make(replaced, "invoke", "FUNCTION=worker", "EVENT=redelivery")
    assert "Traceback" not in output
    assert '"reason":"payload.name is missing"' in output
    assert "Deleted a repeated message" in output


def test_the_scenario_of_the_shipped_work_states_that_it_needs_it(replaced: Path) -> None:
    with pytest.raises(
        AssertionError, match="needs the shipped work, and functions/worker has another: send yours with"
    ):
        run_make(replaced, "run-worker")


def test_the_events_of_own_work_are_listed(replaced: Path) -> None:
    assert "greet" in run_make(replaced, "invoke", "FUNCTION=worker")
