"""The keys that looks have met on their way back through a topic, kept for the looks that go on from them."""

from __future__ import annotations

import secrets
import threading
from typing import Final

MOST_KEYS: Final = 400_000
"""Keys of all looks together; the oldest looks are forgotten."""

_LOOKS: Final = 2
"""Looks of a session that are known: the newest, and the one that a page asks for again if its answer was lost."""


class SeenKeys:
    """Sets of digests of keys, by the session that may go on and a word that names the look. Threads may share it."""

    def __init__(self, *, most_keys: int = MOST_KEYS) -> None:
        self._most_keys = most_keys
        self._looks: dict[tuple[str, str], frozenset[bytes]] = {}
        self._count = 0
        self._lock = threading.Lock()

    def keep(self, session_id: str, keys: frozenset[bytes]) -> str:
        """The word by which ``find`` gives them to the same session; the newest are always kept."""
        word = secrets.token_urlsafe(9)
        with self._lock:
            self._looks[session_id, word] = keys
            self._count += len(keys)
            own = [each for each in self._looks if each[0] == session_id]
            for each in own[:-_LOOKS]:
                self._drop(each)
            while self._count > self._most_keys and len(self._looks) > 1:
                self._drop(next(iter(self._looks)))
        return word

    def _drop(self, look: tuple[str, str]) -> None:
        self._count -= len(self._looks.pop(look))

    def find(self, session_id: str, word: str) -> frozenset[bytes] | None:
        """The keys of a look; None if they are not known any more."""
        with self._lock:
            return self._looks.get((session_id, word))
