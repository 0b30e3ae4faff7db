"""What the tests share: where Apache Kafka's own tools are, for the few tests that ask them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.testing import RunningBroker, running_broker


def find_kafka_home() -> Path | None:
    """The directory of Apache Kafka 4.3.1 with its ``libs``, if this machine has one."""
    candidates = [
        os.environ.get("KAFKA_HOME"),
        Path(__file__).parent.parent / ".cache" / "kafka-4.3.1",
        Path.home() / ".cache" / "kafka-dist-4.3.1",
    ]
    for candidate in candidates:
        if candidate and (Path(candidate) / "libs").is_dir() and shutil.which("java"):
            return Path(candidate)
    return None


@pytest.fixture(scope="session")
def kafka_home() -> Path:
    """Apache Kafka's directory; the test is skipped without one."""
    home = find_kafka_home()
    if home is None:
        pytest.skip("Apache Kafka 4.3.1 is not on this machine (KAFKA_HOME)")
    return home


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker for the tests of one file."""
    with running_broker() as running:
        yield running
