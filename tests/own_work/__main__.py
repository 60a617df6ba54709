"""`make own-work`: replace the shipped work by own work in a copy, and run what docs/retries.md promises for it.

`make test` runs a part (test_own_work.py). This is the rest: the linters, and the tests that read the worker's function,
its events or its resources.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.own_work.replaced_tree import replace, run, run_make

TESTS = (
    "functions",
    *(f"tests/{name}" for name in ("fuzz/test_fuzz_work.py", "least_privilege", "mutants/test_mutant_catalogue.py")),
    *(f"tests/{name}" for name in ("runtime", "scenarios/test_worker_client.py", "template", "unit/retry")),
)
# The tests of the other flows are in folders of tests/unit.
UNIT = "tests/unit/test_*.py"


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="own-work-"))
    try:
        replace(folder)
        unit = [str(path.relative_to(folder)) for path in sorted(folder.glob(UNIT))]
        steps = {
            "format, lint and types": lambda: run_make(folder, "lint-code"),
            "the template": lambda: run(folder, "cfn-lint", "template.yaml"),
            "tests": lambda: run(folder, "python", "-m", "pytest", "-q", "--numprocesses", "2", *TESTS, *unit),
            "an event": lambda: run_make(folder, "invoke", "FUNCTION=worker", "EVENT=greet"),
        }
        for name, step in steps.items():
            began = time.monotonic()
            output = step()
            print(f"own work: {name}: {time.monotonic() - began:.0f} s: {output.strip().splitlines()[-1:]}", flush=True)
    except AssertionError as error:
        print(f"own work: failed: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
