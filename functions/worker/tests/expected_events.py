"""The metrics that the shipped work's sample events count, as in tests/deployed/test_sample_events.py."""

from __future__ import annotations

EXPECTED: dict[str, dict[str, float]] = {
    "worker/happy": {"WorkSucceeded": 1},
    "worker/retry": {"WorkSucceeded": 1},
    "worker/redriven_dead_letter": {"WorkSucceeded": 1},
    "worker/two_records": {"WorkSucceeded": 1, "WorkDeadLettered": 1},
    "worker/poison_payload": {"WorkDeadLettered": 1},
    "worker/missing_input": {"WorkDeadLettered": 1},
}
