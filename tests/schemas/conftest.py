"""A registry for a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.schemas.registry_server import Registry, running_registry


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry without schemas."""
    with running_registry() as running:
        yield running
