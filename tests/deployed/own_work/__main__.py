"""`make own-work`: replace the shipped work by own work in a copy, and run what docs/retries.md promises for it.

These are the linters, the tests that read the function of the worker, its events or its resources, and its events on
the embedded AWS. The scenario of the shipped work states that it needs it.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dev.emulator.environment import ROOT
from tests.deployed.own_work.replaced_tree import replace, run, run_make

TESTS = (
    "functions",
    "tests/deployed/test_sample_events.py",
    "tests/unit/fuzz/test_fuzz_work.py",
    "tests/template/roles",
    "tests/guards/test_guards.py",
    "tests/deployed/test_worker_client.py",
    "tests/unit/retry",
)
TEMPLATE_TESTS = "tests/template/test_*template*.py"
# The tests of the other flows are in folders of tests/unit.
UNIT = "tests/unit/test_*.py"


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="own-work-"))
    try:
        replace(folder)
        if (ROOT / ".mypy_cache").exists():  # mypy checks only what differs
            shutil.copytree(ROOT / ".mypy_cache", folder / ".mypy_cache")
        # The linters and mypy also check the example of the page.
        (example,) = re.findall(r"```python\n(.*?)```", (folder / "docs" / "retries.md").read_text(), re.DOTALL)
        (folder / "functions" / "worker" / "src" / "invoices.py").write_text(example)
        run(folder, "git", "init", "--quiet")  # the words check reads the files that git knows
        run(folder, "git", "add", "--all")
        more = [str(path.relative_to(folder)) for place in (UNIT, TEMPLATE_TESTS) for path in folder.glob(place)]
        steps: dict[str, Callable[[], object]] = {
            "format, lint and types": lambda: run_make(folder, "lint-code"),
            "the template": lambda: run(folder, "cfn-lint", "template.yaml"),
            "tests": lambda: run(folder, "python", "-m", "pytest", "-q", "--numprocesses", "2", *TESTS, *more),
            "events": lambda: _check_events(folder),
            "the scenario": lambda: _check_scenario(folder),
        }
        for name, step in steps.items():
            began = time.monotonic()
            step()
            print(f"own work: {name}: passed in {time.monotonic() - began:.0f} s", flush=True)
    except AssertionError as error:
        print(f"own work: failed: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder)
    return 0


def _check_events(folder: Path) -> None:
    assert "greet" in run_make(folder, "invoke", "FUNCTION=worker"), "the own event is not listed"
    try:
        # The redelivery is one of the shipped work: any work ends it.
        events = ("greet", "redelivery", "redelivery")
        output = "".join(run_make(folder, "invoke", "FUNCTION=worker", f"EVENT={event}") for event in events)
    finally:
        run_make(folder, "local-down")
    expected = ('"reason":"payload.name is missing"', "Deleted a repeated message")
    assert all(text in output for text in expected), output
    assert "Traceback" not in output, output


def _check_scenario(folder: Path) -> None:
    try:
        run_make(folder, "run-worker")
    except AssertionError as error:
        if "needs the shipped work, and functions/worker has another: send yours with" in str(error):
            return
        raise
    raise AssertionError("make run-worker runs with own work")


if __name__ == "__main__":
    sys.exit(main())
