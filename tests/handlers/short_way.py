"""Whether requests that repeat others take the short way."""

from __future__ import annotations

from typing import Any

import pytest


def watch(monkeypatch: pytest.MonkeyPatch, repeated: type[Any]) -> list[bool]:
    """Fills up with, for each time that the class's short way is tried, whether it is taken."""
    tries: list[bool] = []
    answer = repeated.answer

    def watched(*args: Any) -> Any:
        reply = answer(*args)
        tries.append(reply is not None)
        return reply

    monkeypatch.setattr(repeated, "answer", watched)
    return tries
