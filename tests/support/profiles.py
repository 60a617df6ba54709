"""How hard Hypothesis tries: one profile for every property of the tree. tests/conftest.py loads it.

`make test` tries each property with the same examples every time, and judges none by its time, so that neither chance
nor a busy machine makes it fail. More examples, by chance:

    python -m pytest tests/fuzz --hypothesis-profile=long

Hypothesis also draws constants that it finds in the loaded modules of the project, and pytest-xdist loads other modules
in each run. `same_examples` leaves these constants to the long profile.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

SHORT, LONG = "short", "long"
_NOT_CHECKED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much]

settings.register_profile(
    SHORT, derandomize=True, deadline=None, report_multiple_bugs=False, suppress_health_check=_NOT_CHECKED
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
    """The loaded profile with a share of its examples. It decorates a property whose examples take long."""
    loaded = settings()
    return settings(loaded, max_examples=max(1, int(loaded.max_examples * of_examples)))


def same_examples() -> None:
    """Load the short profile, and make its examples the same whichever modules are loaded.

    Hypothesis has no setting for this. A profile that is not derandomized draws the constants as before.
    """
    settings.load_profile(SHORT)
    get_local_constants = providers._get_local_constants
    providers._get_local_constants = lambda: Constants() if settings().derandomize else get_local_constants()
