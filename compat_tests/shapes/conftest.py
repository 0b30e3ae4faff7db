"""These tests start the clusters that they are about, whatever else the command line asks for."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def clusters_of_kbroker(request: pytest.FixtureRequest) -> None:
    """Skip where another broker is under test, or one that is running already."""
    if request.config.getoption("--broker") == "apache" or request.config.getoption("--bootstrap"):
        pytest.skip("the shapes are kbroker's")
