"""The outcomes of the shipped work's sample events, as in tests/deployed/runtime/expected_outcomes.py."""

from __future__ import annotations

from tests.deployed.runtime.runtime_outcomes import Expectation, work_dead_lettered

REQUEST = "orders-2026-11-21"


def _works(attempts: int) -> Expectation:
    return lambda outcome: (
        (outcome.failed_items, outcome.counted("WorkSucceeded")) == (0, [1.0])
        and (row := outcome.row("RequestLedgerTable", REQUEST))["status"] == "SUCCEEDED"
        and row["attempts"] == str(attempts)
    )


EXPECTED: dict[str, Expectation] = {
    "worker/happy": _works(1),
    "worker/retry": _works(2),
    "worker/redriven_dead_letter": _works(9),
    "worker/two_records": work_dead_lettered("Poison", others=1),
    "worker/poison_payload": work_dead_lettered("Poison"),
    "worker/missing_input": work_dead_lettered("Poison"),
    "worker/unreachable_input": lambda outcome: (
        (outcome.failed_items, outcome.delayed("WorkQueue")) == (0, 1)
        and outcome.row("RequestLedgerTable", "orders-2026-11-24")["status"] == "WAITING"
    ),
}
