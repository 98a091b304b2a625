"""Every implementation of coordination, for the tests that all of them pass."""

import pytest

from coordination.places import Runner, run_embedded


@pytest.fixture(params=["embedded"])
def run(request: pytest.FixtureRequest) -> Runner:
    """Runs a scenario in a place of its own."""
    return run_embedded
