"""Answers of a rule that are kept for a while: for ``keep_seconds``, and not beyond its ``invalidate``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from kbroker.rules.bases import KEEP_SECONDS

A = TypeVar("A")

MAX_KEPT: Final = 20_000
"""Then all are forgotten: asking for ever new names must not fill the memory."""

MAX_KEPT_NAME: Final = 255


class AnswerCache(Generic[A]):
    """Answers by question. ``version`` is another number whenever one may be other than it was."""

    def __init__(self, rule: Any, now: Callable[[], float]) -> None:
        """``now`` gives seconds."""
        keep = getattr(rule, "keep_seconds", KEEP_SECONDS)
        self._seconds = float(keep) if isinstance(keep, int | float) and keep >= 0 else KEEP_SECONDS
        self._rule = rule
        self._now = now
        self._told = object()
        self._changes = self.changes
        self._until = now() + self._seconds
        self._answers: dict[Any, A] = {}
        self._version = 0

    @property
    def version(self) -> int:
        """Grows."""
        if self._seconds == 0:
            self.forget()
        elif self._now() >= self._until or self.changes != self._changes:
            self._until = self._now() + self._seconds if self._seconds < math.inf else math.inf
            self.forget()
        return self._version

    def forget(self) -> None:
        """Drop all answers."""
        self._changes = self.changes
        self._answers.clear()
        self._version += 1

    def invalidate(self) -> None:
        """Have all answers forgotten before the next question. May be called in any thread."""
        self._told = object()

    def get(self, question: Any) -> A | None:
        """The answer that is kept; None if there is none."""
        _ = self.version  # forgets what is too old
        return self._answers.get(question)

    def put(self, question: Any, answer: A, changes: Any) -> None:
        """Keep an answer, unless the rules have changed since it was asked, when ``changes`` was theirs."""
        if self._seconds == 0 or changes != self.changes:
            return
        if len(self._answers) >= MAX_KEPT:
            self._answers.clear()
        self._answers[question] = answer

    @property
    def changes(self) -> tuple[Any, object]:
        """Another value after each invalidation: by the rule, which counts its own, and by the node."""
        return getattr(self._rule, "changes", 0), self._told
