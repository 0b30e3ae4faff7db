"""``kbroker doctor`` and ``bundle``, run in this process; brokers without and with mistakes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kbroker.client import Client, ResponseError
from kbroker.client.topics import NewTopic, create_topics
from kbroker.config.properties_file import format_properties
from kbroker.testing import RunningBroker, running_broker
from kbroker.tools.cli import main

PATIENT = ("--timeout", "120")
"""Options with which a broker on a busy machine is not taken for one that does not answer."""

QUIET = {"auto.create.topics.enable": "false"}
"""Properties of a development node about which the doctor says nothing."""

Doctor = Callable[..., dict[str, list[dict[str, Any]]]]
"""Runs the command; check -> its findings. ``Doctor.code`` is not kept: it must go with the findings."""


def create(client: Client, topic: NewTopic) -> None:
    """Create a topic; it must succeed."""
    [answer] = create_topics(client, [topic]).values()
    assert not isinstance(answer, ResponseError), answer


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Doctor:
    monkeypatch.delenv("KBROKER_BOOTSTRAP", raising=False)
    # Brokers of this process log, by handlers of earlier tests, too, whose streams are closed by now.
    monkeypatch.setattr(logging, "raiseExceptions", False)

    def run(*words: object) -> dict[str, list[dict[str, Any]]]:
        capsys.readouterr()
        code = main(["doctor", "--json", "--look-again", "0", *PATIENT, *map(str, words)])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        document = json.loads(captured.out)
        found: dict[str, list[dict[str, Any]]] = {}
        for finding in document["findings"]:
            found.setdefault(finding["check"], []).append(finding)
        assert code == int(any(each["severity"] == "error" for each in document["findings"]))
        return found

    return run


@pytest.fixture
def properties_file(tmp_path: Path) -> Callable[[Mapping[str, str]], Path]:
    def write(properties: Mapping[str, str]) -> Path:
        path = tmp_path / "client.properties"
        path.write_text(format_properties(properties, "of a test"))
        return path

    return write


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A sound broker, which takes transactions that nobody has begun."""
    with running_broker(QUIET | {"transaction.partition.verification.enable": "false"}) as running:
        yield running
