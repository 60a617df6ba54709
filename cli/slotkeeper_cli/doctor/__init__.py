"""`slotkeeper doctor`: a list of checks over what is fetched of a stack.

findings.py says what a check is and goes through them, facts.py fetches, the other modules look. A check is a function
of the facts alone: what it needs, it finds there.
"""

from slotkeeper_cli.doctor import plumbing, slots, watching, work
from slotkeeper_cli.doctor.findings import Check

CHECKS: tuple[Check, ...] = (*slots.CHECKS, *plumbing.CHECKS, *watching.CHECKS, *work.CHECKS)
DRIFT = plumbing.DRIFT
