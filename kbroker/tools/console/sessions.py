"""Sessions of browsers: a cookie that only the server can read, a token against forged requests, perhaps a user."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from kbroker.tools.console.asking import Cluster
from kbroker.tools.console.catalogue import TopicCatalogue
from kbroker.tools.console.courses import Courses
from kbroker.tools.diagnosis.findings import FindingHistory
from kbroker.tools.diagnosis.group_watch import GroupWatch

_COOKIE: Final = "kbroker_console"


def cookie_name(host: str, *, secure: bool, cluster: str = "") -> str:
    """The session's cookie at a value of Host: browsers keep ports of a name apart by nothing else.

    The page of each ``cluster`` has a session of its own. Under https the cookie has the prefix by which a browser
    takes it from this host alone, and not from a sibling's.
    """
    port = host.rpartition(":")[2]
    name = f"{_COOKIE}_{port}" if port.isascii() and port.isdigit() else _COOKIE
    name = f"{name}.{cluster}" if cluster else name
    return f"__Host-{name}" if secure else name


MAX_SESSIONS: Final = 1000
IDLE_SECONDS: Final = 8 * 3600.0
LONGEST_SECONDS: Final = 12 * 3600.0
"""A session ends then, used or not."""


class View:
    """The cluster as one user may see it: what is asked, and what is remembered of the answers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.catalogue = TopicCatalogue(cluster)
        self.history = FindingHistory()
        self.groups = GroupWatch()
        self.courses = Courses()
        """Of each group its lag."""

        self.flows = Courses()
        """Of each group the sums of its committed offsets, and of the ends of the same logs."""


@dataclass(slots=True)
class Session:
    """A browser. ``view`` is None until its user has signed in, where that is asked for."""

    view: View | None
    user: str | None = None
    id: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    used: float = 0.0
    began: float = 0.0
    running: list[trio.CancelScope] = field(default_factory=list)
    """Its live tails and exports."""
    exports: dict[str, str] = field(default_factory=dict)
    """Word of an export -> what became of it: nothing yet, or ``done``, or why it is not whole."""


class Sessions:
    """All sessions, in memory: they end with the process, when they are not used for eight hours, and after twelve."""

    def __init__(
        self, on_end: Callable[[str], object] = lambda _: None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``on_end`` is called with the id of a session that has ended."""
        self._on_end = on_end
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def find(self, cookie: str | None) -> Session | None:
        """The session that a browser names, if it lives."""
        session = self._sessions.get(cookie or "")
        if session is None:
            return None
        if self._is_over(session):
            self.end(session)
            return None
        session.used = self._clock()
        return session

    def _is_over(self, session: Session) -> bool:
        now = self._clock()
        return now - session.used > IDLE_SECONDS or now - session.began > LONGEST_SECONDS

    def lives(self, session: Session) -> bool:
        """Whether nobody has ended a session."""
        return self.has(session.id)

    def has(self, session_id: str) -> bool:
        """Whether there is a session with this id, which nobody has ended."""
        return session_id in self._sessions

    @contextmanager
    def while_alive(self, session: Session) -> Iterator[trio.CancelScope]:
        """A block that is cancelled when the session ends."""
        with trio.move_on_after(max(session.began + LONGEST_SECONDS - self._clock(), 0)) as scope:
            session.running.append(scope)
            if not self.lives(session):
                scope.cancel()
            try:
                yield scope
            finally:
                session.running.remove(scope)

    def begin(self, view: View | None, user: str | None = None) -> Session:
        """A new session; the one that was not used for longest makes room when there are too many."""
        for session in [each for each in self._sessions.values() if self._is_over(each)]:
            self.end(session)
        if len(self._sessions) >= MAX_SESSIONS:
            self.end(min(self._sessions.values(), key=lambda each: (each.user is not None, each.used)))
        session = Session(view, user, used=self._clock(), began=self._clock())
        self._sessions[session.id] = session
        return session

    def end(self, session: Session) -> None:
        """Forget a session, end what it has running, and close what its user's own clients have open."""
        self._sessions.pop(session.id, None)
        for scope in session.running:
            scope.cancel()
        self._on_end(session.id)
        if session.user is not None and session.view is not None:
            session.view.cluster.close()
