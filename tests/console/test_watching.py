"""Explorers are watched while somebody looks, and a little longer."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from kbroker.tools.console.watching import LINGER_SECONDS, MAX_READERS, Watching


class Timers:
    """Stands for ``threading.Timer``: its timers go off when they are told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def __call__(self, seconds: float, function: Callable[[], None]) -> Timers:
        self.waiting.append((seconds, function))
        return self

    def start(self) -> None:
        self.daemon = True

    def go_off(self) -> None:
        waiting, self.waiting = self.waiting, []
        for _, function in waiting:
            function()


def test_pages_that_come_and_go_leave_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, now = Timers(), [100.0]
    monkeypatch.setattr("threading.Timer", timers)
    monkeypatch.setattr("kbroker.tools.console.watching.time", SimpleNamespace(monotonic=lambda: now[0]))
    watched = Watching(())
    for _ in range(100):
        reader = watched.enter()
        assert reader is not None
        watched.leave(reader)
    assert len(timers.waiting) == 1
    now[0] += LINGER_SECONDS / 2
    reader = watched.enter()
    assert reader is not None
    watched.leave(reader)
    now[0] += LINGER_SECONDS / 2
    timers.go_off()
    assert [seconds for seconds, _ in timers.waiting] == [LINGER_SECONDS / 2]
    stop = watched._stop
    assert stop is not None and not stop.is_set()
    now[0] += LINGER_SECONDS / 2
    timers.go_off()
    assert stop.is_set() and not timers.waiting


def test_readers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.Timer", Timers())
    watched = Watching(())
    assert all(watched.enter() is not None for _ in range(MAX_READERS))
    assert watched.enter() is None
