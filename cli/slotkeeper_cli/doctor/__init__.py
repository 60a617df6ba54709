"""`slotkeeper doctor`: the checks of a stack.

health_checks.py defines a check and runs the checks, facts.py fetches their facts, and the other modules contain the
checks. A check depends on the facts alone.
"""

from slotkeeper_cli.doctor import alarm_checks, infrastructure_checks, retry_checks, slot_checks
from slotkeeper_cli.doctor.health_checks import HealthCheck

CHECKS: tuple[HealthCheck, ...] = (
    *slot_checks.CHECKS,
    *infrastructure_checks.CHECKS,
    *alarm_checks.CHECKS,
    *retry_checks.CHECKS,
)
DRIFT = infrastructure_checks.DRIFT
