"""Secure nodes of the broker under test, and clients that connect to them in many ways."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from compat_tests.security.servers import SecureServers
from compat_tests.security.world import World, running_world

FULL = os.environ.get("KBROKER_COMPAT_SECURITY_FULL", "") not in ("", "0")
"""Each client with each protocol, mechanism and fault: minutes. Without, each of them is seen with some."""


def kind_of(config: pytest.Config) -> str:
    """The broker under test: "kbroker" or "apache". Skips where the options leave the tests no choice of nodes."""
    if config.getoption("--bootstrap"):
        pytest.skip("the nodes are secured by the tests themselves")
    if config.getoption("--shape"):
        pytest.skip("the shape is part of these tests")
    kind: str = config.getoption("--broker")
    if kind == "both":
        raise pytest.UsageError("--broker both is for compat_tests/spark")
    return kind


def _world(request: pytest.FixtureRequest, count: int, mechanism_between: str) -> Iterator[World]:
    servers = SecureServers(*[kind_of(request.config)] * count, mechanism_between=mechanism_between)
    with running_world(servers) as world:
        yield world


@pytest.fixture(scope="session")
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A single secure node; the mechanism between brokers is PLAIN."""
    yield from _world(request, 1, "PLAIN")


@pytest.fixture(scope="package")
def three(request: pytest.FixtureRequest) -> Iterator[World]:
    """Three nodes, which know one another by SCRAM over TLS and, as controllers, by certificates."""
    yield from _world(request, 3, "SCRAM-SHA-512")
