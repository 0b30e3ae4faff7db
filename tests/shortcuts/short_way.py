"""Whether requests that repeat others take the short way."""

from __future__ import annotations

from typing import Any

import pytest


def watch(monkeypatch: pytest.MonkeyPatch, shortcut: type[Any]) -> list[bool]:
    """Fills up with, for each time that the class's short way is tried, whether it is taken."""
    tries: list[bool] = []
    try_serve = shortcut.try_serve

    def watched(*args: Any) -> Any:
        reply = try_serve(*args)
        tries.append(reply is not None)
        return reply

    monkeypatch.setattr(shortcut, "try_serve", watched)
    return tries
