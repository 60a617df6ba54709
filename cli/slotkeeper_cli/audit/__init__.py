"""The judge of a history of work: whether the guarantees of docs/correctness.md held. Pure; makes no call.

A check fails only for a violation that is certain in the records, however times were rounded. It is not shown if the
records that it needs could not be read, or if nothing happened that could have violated it. Its docstring states what
it cannot see.
"""

from __future__ import annotations

from slotkeeper_cli.audit.check_result import CheckResult
from slotkeeper_cli.audit.free_slot_checks import freed, taken
from slotkeeper_cli.audit.history_checks import accounted, never_above, never_above_of_key, never_again
from slotkeeper_cli.audit.start_checks import in_order, never_faster
from slotkeeper_cli.audit.work_history import KeyLimits, WorkHistory


def judge(history: WorkHistory) -> list[CheckResult]:
    """All checks of a history: limit, accounted, once, freed, order, free; with a rate also rate, with keys keys."""
    checks = [never_above, accounted, never_again, freed, in_order, taken]
    if any(process.rate for process in history.processes.values()):
        checks.append(never_faster)
    if any(KeyLimits(history, name).exist for name in history.names):
        checks.append(never_above_of_key)
    return [check(history) for check in checks]
