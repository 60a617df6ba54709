"""How hard Hypothesis tries.

`make test` tries each property with the same examples every time, so that it is never red by chance. More, by chance:

    python -m pytest tests/fuzz --hypothesis-profile=long

Importing this makes the names known; a folder's conftest.py does, since they are asked for before any test is read.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

SHORT, LONG = "short", "long"
_ALL_CHECKS_BUT_TIME = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much]

settings.register_profile(
    SHORT,
    max_examples=40,
    derandomize=True,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=_ALL_CHECKS_BUT_TIME,
)
settings.register_profile(
    LONG, max_examples=3000, deadline=None, print_blob=True, suppress_health_check=_ALL_CHECKS_BUT_TIME
)


def profile(config: pytest.Config, share: float = 1.0) -> settings:
    """The profile that the command line names, else SHORT; it decorates a property.

    Args:
        share: of the profile's examples.
    """
    chosen = settings.get_profile(config.getoption("--hypothesis-profile") or SHORT)
    return settings(chosen, max_examples=max(1, int(chosen.max_examples * share)))
