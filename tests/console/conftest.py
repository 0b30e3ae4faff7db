"""A broker with a console beside it for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbroker.testing import RunningBroker, running_broker
from tests.console.console_process import ConsoleProcess, console_process


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker for all tests of a module."""
    with running_broker() as running:
        yield running


@pytest.fixture(scope="module")
def console(broker: RunningBroker) -> Iterator[ConsoleProcess]:
    """A console that may change things."""
    with console_process("-b", broker.bootstrap_servers, "--writes", "--mask", "secret-*=$.card,headers") as running:
        yield running
