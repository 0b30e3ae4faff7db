"""The command, run in this process against the broker under test."""

from __future__ import annotations

import pytest

from tests.cli_command import Run, command_for


@pytest.fixture
def kb(bootstrap: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command against that broker."""
    return command_for(bootstrap, monkeypatch, capsys)
