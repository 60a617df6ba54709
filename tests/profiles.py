"""Hypothesis' profiles: how many examples each property of the tree has. conftest.py loads the short one.

`make test` uses the same examples every time and sets no deadline, so that neither chance nor a busy machine makes a
property fail. More examples, chosen at random:

    python -m pytest tests/unit/fuzz --hypothesis-profile=long

Hypothesis also draws constants that it finds in the loaded modules of the project, and pytest-xdist loads other modules
in each run. `same_examples` removes these constants from the short profile.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

SHORT, LONG = "short", "long"
_NOT_CHECKED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much]

settings.register_profile(
    SHORT,
    max_examples=70,
    derandomize=True,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=_NOT_CHECKED,
)
settings.register_profile(
    LONG,
    max_examples=3000,
    derandomize=False,
    deadline=None,
    print_blob=True,
    suppress_health_check=_NOT_CHECKED,
)


def share(of_examples: float) -> settings:
    """Decorator for a property with slow examples: the loaded profile with a share of its examples."""
    loaded = settings()
    return settings(loaded, max_examples=max(1, int(loaded.max_examples * of_examples)))


def same_examples() -> None:
    """Load the short profile, and make its examples independent of the loaded modules.

    Hypothesis has no setting for this. A profile that is not derandomized still draws the constants.
    """
    settings.load_profile(SHORT)
    get_local_constants = providers._get_local_constants
    providers._get_local_constants = lambda: Constants() if settings().derandomize else get_local_constants()
