"""The command, run in this process against a broker of the test file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbroker.testing import RunningBroker, running_broker
from tests.cli_command import Run, command_for


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker that keeps records that are old."""
    with running_broker({"log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture
def kb(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command against that broker."""
    return command_for(broker.bootstrap_servers, monkeypatch, capsys)
