"""Each property uses the loaded profile, which has no deadline."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import _get_local_constants

from tests.support.profiles import LONG, SHORT

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", [SHORT, LONG])
def test_no_profile_limits_the_time_of_a_property(name: str) -> None:
    profile = settings.get_profile(name)
    assert profile.deadline is None
    assert HealthCheck.too_slow in profile.suppress_health_check


def test_the_short_profile_tries_the_same_examples_with_any_modules_loaded() -> None:
    assert settings.get_profile(SHORT).derandomize
    constants = _get_local_constants()
    assert not settings().derandomize or not len(constants)


@given(st.none())
def test_a_property_without_settings_has_the_loaded_profile(nothing: None) -> None:
    assert settings().deadline is None


def test_no_property_has_settings_of_its_own() -> None:
    own = {
        str(file.relative_to(ROOT))
        for folder in ("tests", "functions")
        for file in (ROOT / folder).rglob("*.py")
        if re.search(r"import .*\bsettings\b", file.read_text()) and "from hypothesis" in file.read_text()
    }
    assert own == {"tests/support/profiles.py", "tests/unit/test_property_profile.py"}
