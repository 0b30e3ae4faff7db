"""Sessions of browsers: a cookie that only the server can read, a token against forged requests, perhaps a user."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kbroker.console.asking import Cluster
from kbroker.console.catalogue import TopicCatalogue
from kbroker.console.troubles import TroubleHistory

COOKIE: Final = "kbroker_console"

MAX_SESSIONS: Final = 1000
IDLE_SECONDS: Final = 8 * 3600.0


class View:
    """The cluster as one user may see it: what is asked, and what is remembered of the answers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.catalogue = TopicCatalogue(cluster)
        self.history = TroubleHistory()


@dataclass(slots=True)
class Session:
    """A browser. ``view`` is None until its user has signed in, where that is asked for."""

    view: View | None
    user: str | None = None
    id: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    used: float = 0.0


class Sessions:
    """All sessions, in memory: they end with the process, and when they are not used for eight hours."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def find(self, cookie: str | None) -> Session | None:
        """The session that a browser names, if it lives."""
        session = self._sessions.get(cookie or "")
        if session is None:
            return None
        if self._clock() - session.used > IDLE_SECONDS:
            self.end(session)
            return None
        session.used = self._clock()
        return session

    def lives(self, session: Session) -> bool:
        """Whether nobody has ended a session."""
        return session.id in self._sessions

    def begin(self, view: View | None, user: str | None = None) -> Session:
        """A new session; the one that was not used for longest makes room when there are too many."""
        for session in [each for each in self._sessions.values() if self._clock() - each.used > IDLE_SECONDS]:
            self.end(session)
        if len(self._sessions) >= MAX_SESSIONS:
            self.end(min(self._sessions.values(), key=lambda each: (each.user is not None, each.used)))
        session = Session(view, user, used=self._clock())
        self._sessions[session.id] = session
        return session

    def end(self, session: Session) -> None:
        """Forget a session, and close what its user's own clients have open."""
        self._sessions.pop(session.id, None)
        if session.user is not None and session.view is not None:
            session.view.cluster.close()
