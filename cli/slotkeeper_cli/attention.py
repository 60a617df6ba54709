"""The checks of a stack, and what needs an operator's attention now: the findings of those that are urgent."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from slotkeeper_cli.account import Account
from slotkeeper_cli.doctor import alarm_checks, infrastructure_checks, job_checks, retry_checks, slot_checks
from slotkeeper_cli.doctor.health_checks import LEVELS, Finding, HealthCheck, examine
from slotkeeper_cli.unread import UnreadSource

CHECKS: tuple[HealthCheck, ...] = (
    *infrastructure_checks.CHECKS,
    *slot_checks.CHECKS,
    *job_checks.CHECKS,
    *retry_checks.CHECKS,
    *alarm_checks.CHECKS,
)
DRIFT = infrastructure_checks.DRIFT
URGENT = tuple(check for check in CHECKS if check.is_urgent)


def attention(account: Account) -> dict[str, Any]:
    """The faults that are urgent, the worst first, and the checks that could not be made.

    Returns:
        items: each with `severity` (bad, warn), `process` or None, `what` in one line, `since` (ISO 8601) or None,
            `why`, and `command`, which fixes or explains it, or None.
        not_read: the checks that could not be made, each with the reason (`UnreadSource.as_dict`).
    """
    found, errors = list[Finding](), defaultdict[str, list[str]](list)
    for result in examine(account, URGENT, time.time()):
        if result.error:
            errors[result.error].append(result.check.about)
        else:
            found += result.findings
    found.sort(key=lambda finding: LEVELS.index(finding.severity), reverse=True)
    not_read = [UnreadSource(f"whether {', '.join(about)}", why) for why, about in errors.items()]
    return {
        "items": [finding.as_dict() for finding in found],
        "not_read": [each.as_dict() for each in not_read],
    }
