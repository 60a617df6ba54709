"""Makes Hypothesis's profiles known before the command line is read."""

import tests.support.profiles  # noqa: F401
