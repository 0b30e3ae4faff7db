"""Progress on standard error, where that is a terminal."""

from __future__ import annotations

import io
import re
import sys
import threading

import pytest

from kbroker.tools.cli.progress import progress, progress_line
from tests.patience import SHORT


class Terminal(io.StringIO):
    """Standard error as a terminal; ``seen`` is set once half of eight is drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        written = super().write(text)
        if "4 of 8" in text:
            self.seen.set()
        return written


def test_a_line() -> None:
    assert progress_line("deleting topics", 0, None, 3.2, str) == "deleting topics, 3 s"
    assert progress_line("verified", 30, 120, 9, lambda count: f"{count} B") == "verified 30 B of 120 B, 25%, 9 s"
    assert progress_line("entries:", 70, None, 1, str) == "entries: 70, 1 s"


def test_it_is_drawn_while_a_call_blocks_and_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("waiting", total=8, first=0.0) as shown:
        shown.add(4)
        assert terminal.seen.wait(SHORT)
        with shown.hidden():
            terminal.write("a result\n")
    assert re.search(r"waiting 4 of 8, 50%, \d+ s", terminal.getvalue())
    assert terminal.getvalue().rsplit("\x1b[K", 1)[1] in ("", "a result\n")


def test_it_names_the_task_that_is_done_now(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("looking", first=0.0) as shown:
        shown.turn_to("looking at 4 of 8 brokers")
        assert terminal.seen.wait(SHORT)
    assert re.search(r"looking at 4 of 8 brokers, \d+ s", terminal.getvalue())


def test_nothing_is_drawn_elsewhere_or_of_what_is_quick(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress("waiting") as shown:
        shown.add(1)
    assert capsys.readouterr() == ("", "")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("waiting", first=3600.0):
        pass
    assert terminal.getvalue() == ""
