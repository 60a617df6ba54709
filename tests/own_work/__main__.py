"""`make own-work`: replace the shipped work by own work in a copy, and run what docs/retries.md promises for it.

`make test` runs a part (test_own_work.py). This is the rest: linters, and the tests that read the function of the
worker, its events or its resources.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.own_work.replaced_tree import replace, run, run_make

EVENTS = "tests/runtime/test_events.py"
TESTS = (
    "functions",
    f"{EVENTS}::test_each_sample_event_has_its_outcome[worker]",
    f"{EVENTS}::test_every_sample_event_has_an_expected_outcome",
    f"{EVENTS}::test_every_sample_event_is_described",
    "tests/fuzz/test_fuzz_work.py",
    "tests/least_privilege",
    "tests/mutants/test_mutant_catalogue.py",
    "tests/scenarios/test_worker_client.py",
    "tests/unit/retry",
)
TEMPLATE_TESTS = "tests/template/test_*template*.py"
# The tests of the other flows are in folders of tests/unit.
UNIT = "tests/unit/test_*.py"


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="own-work-"))
    try:
        replace(folder)
        # The linters and mypy also check the example of the page.
        (example,) = re.findall(r"```python\n(.*?)```", (folder / "docs" / "retries.md").read_text(), re.DOTALL)
        (folder / "functions" / "worker" / "src" / "invoices.py").write_text(example)
        run(folder, "git", "init", "--quiet")  # the words check reads the files that git knows
        run(folder, "git", "add", "--all")
        more = [str(path.relative_to(folder)) for place in (UNIT, TEMPLATE_TESTS) for path in folder.glob(place)]
        steps = {
            "format, lint and types": lambda: run_make(folder, "lint-code"),
            "the template": lambda: run(folder, "cfn-lint", "template.yaml"),
            "tests": lambda: run(folder, "python", "-m", "pytest", "-q", "--numprocesses", "2", *TESTS, *more),
            "an event": lambda: run_make(folder, "invoke", "FUNCTION=worker", "EVENT=greet"),
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


if __name__ == "__main__":
    sys.exit(main())
