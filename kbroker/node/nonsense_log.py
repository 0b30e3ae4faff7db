"""Keeps a listener from logging each peer with another protocol: one that wants TLS comes back at once, for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.env import Env

SILENT_SECONDS = 10.0
"""Seconds between two lines of one listener."""


class NonsenseLog:
    """Decides for one listener which of these lines are logged, and counts the others."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._told_at = -SILENT_SECONDS
        self._left_out = 0

    def line(self, text: str) -> str | None:
        """``text`` with the number of lines left out before it; None to leave this one out."""
        now = self._env.now()
        if now < self._told_at + SILENT_SECONDS:
            self._left_out += 1
            return None
        left_out, self._left_out, self._told_at = self._left_out, 0, now
        return f"{text} (and {left_out} more since the last such line)" if left_out else text
