"""`slotkeeper doctor`: a list of checks over what is fetched of a stack.

health_checks.py defines a check and runs all of them, facts.py fetches what they need, the other modules hold the
checks. A check is a function of the facts alone.
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
