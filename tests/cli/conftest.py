"""The command, run in this process against a broker of the test file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from kbroker.cli import main
from kbroker.testing import RunningBroker, running_broker


@dataclass
class Result:
    """The outcome of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """The words of each line."""
        return [line.split() for line in self.out.splitlines()]

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Result]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker that does not tell readers of empty topics to wait."""
    with running_broker() as running:
        yield running


@pytest.fixture
def kb(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """``kb("topic", "list")`` runs the command; by default it must succeed. Nothing is ever a traceback."""
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap_servers)
    capsys.readouterr()

    def run(*words: str, code: int | None = 0) -> Result:
        try:
            ended = main(list(words))
        except SystemExit as error:
            ended = int(error.code or 0)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        assert code is None or ended == code, captured
        return Result(ended, captured.out, captured.err)

    return run
