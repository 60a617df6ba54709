"""The patches, grouped by services. Each can be offered to MiniStack.

Its docstring states the behavior of AWS that it adds and the page, what MiniStack does instead, and the row of
tests/facts or the test that fails without it. Some only save time.

SLOTKEEPER_ENGINE_WITHOUT names patches to leave out, by which a test shows what a patch is for.
"""

import os
from importlib import import_module

from dev.emulator.engine.emulator import PATCHES

# In their order of application: a later one may wrap the functions of an earlier one.
MODULES = (
    "dynamodb",
    "glue",
    "stepfunctions_executions",
    "stepfunctions_expressions",
    "stepfunctions_tasks",
    "stepfunctions_integrations",
    "stepfunctions_tokens",
    "templates",
    "sqs",
    "functions",
    "injected_faults",
    "s3_downstream",
    "restarts",
    "programs_only",
)
# Patches that need a file, and the variable that names it.
BY_FILE = {
    "injected_faults": "SLOTKEEPER_ENGINE_FAULTS",
    "s3_downstream": "SLOTKEEPER_ENGINE_DOWNSTREAM",
    "dynamodb_journal": "SLOTKEEPER_ENGINE_JOURNAL",
    "restarts": "STATE_DIR",
}


def apply_all(without: set[str]) -> None:
    """Apply every patch except those in `without` and those whose file is not named."""
    for module in MODULES:
        import_module(f"{__name__}.{module}")
    unknown = without - PATCHES.keys()
    if unknown:
        raise SystemExit(f"SLOTKEEPER_ENGINE_WITHOUT names no such patch: {', '.join(sorted(unknown))}")
    for name, apply in PATCHES.items():
        if name not in without and BY_FILE.get(name, "PATH") in os.environ:
            apply()
