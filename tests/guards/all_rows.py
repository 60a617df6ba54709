"""All rows: of the product, and of the worker's shipped work unless own work has replaced it."""

from __future__ import annotations

from pathlib import Path

from tests.guards import ends_rows, retries_rows, slots_rows, token_rows, workflow_rows
from tests.guards.rows import Row

ROWS: list[Row] = [*slots_rows.ROWS, *ends_rows.ROWS, *workflow_rows.ROWS, *retries_rows.ROWS, *token_rows.ROWS]
if (Path(__file__).parents[2] / "functions" / "worker" / "tests" / "guard_rows.py").exists():
    from functions.worker.tests import guard_rows

    ROWS += guard_rows.ROWS

# Known failures that are a mutation of an expression.
MUTATIONS = {
    "F5": "ReleaseSlot: without attribute_exists(holders.#me)",
    "F6": "LeaseSteps.take: slots_in_use < slot_limit with <>",
    "F8": "Processes.create: without attribute_not_exists(process_name)",
    "F11": "Grants.grant: without slots_in_use <= :counted",
}
# An engine of the race tests that is not atomic is no code of this project. Races run on DynamoDB Local, and each has a
# control without the condition, which must admit too many.
NOWHERE = {"F14"}
FAILURES = tuple(f"F{number}" for number in range(1, 37))
