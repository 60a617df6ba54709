"""The checks of a stack, of `slotkeeper doctor` and of what needs attention (attention.py has them all).

health_checks.py defines a check and makes the checks, readings.py reads what only they need, and the other modules
contain the checks. A check reads through the account alone.
"""
