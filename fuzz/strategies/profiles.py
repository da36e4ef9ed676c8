"""Hypothesis profiles for property tests over cases.

``dev`` is for a quick look while editing, ``ci`` draws the same cases in every run, ``nightly`` looks for new ones.
Call ``register`` in a conftest, then choose with ``--hypothesis-profile=NAME`` or ``HYPOTHESIS_PROFILE=NAME``.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

DEFAULT = "dev"
ENVIRONMENT = "HYPOTHESIS_PROFILE"

EXAMPLES = {"dev": 50, "ci": 200, "nightly": 5_000}
"""Cases per test."""

SLOW_BY_NATURE = (HealthCheck.too_slow, HealthCheck.data_too_large)
"""A large stack takes many draws and a planner tens of milliseconds; neither is a mistake of the test."""


def register() -> None:
    """Registers the profiles; loads the one that the environment names, or ``dev`` where none was chosen."""
    chosen = settings.get_current_profile_name()
    for name, examples in EXAMPLES.items():
        settings.register_profile(
            name,
            max_examples=examples,
            # A planner's first answer includes an import of some ten seconds.
            deadline=None,
            suppress_health_check=SLOW_BY_NATURE,
            derandomize=name == "ci",
            print_blob=name != "dev",
        )
    named = os.environ.get(ENVIRONMENT)
    if named is not None:
        settings.load_profile(named)
    elif chosen in EXAMPLES:
        settings.load_profile(chosen)  # Hypothesis loads a "ci" of its own on a CI machine
    elif chosen == "default":
        settings.load_profile(DEFAULT)
