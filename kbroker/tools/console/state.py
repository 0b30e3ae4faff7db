"""The state of one console: its settings, its sessions, its limits, and the clients by which it asks."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from kbroker.base.exponential_backoff import exponential_backoff
from kbroker.client import Client
from kbroker.client.properties import ClientProperties
from kbroker.client.security import security_of
from kbroker.tools.console.asking import THREADS, Cluster
from kbroker.tools.console.copies import Copies
from kbroker.tools.console.fault_channel import FaultChannel
from kbroker.tools.console.sessions import Session, Sessions, View
from kbroker.tools.console.settings import ConsoleSettings
from kbroker.tools.console.watching import Watching

if TYPE_CHECKING:
    from kbroker.client.schemas.decoder import RecordDecoder
    from kbroker.client.schemas.registry import SchemaRegistry
    from kbroker.client.schemas.settings import RegistrySettings

TAILS: Final = 16
"""Live tails at once."""

EXPORTS: Final = 4
"""Exports at once."""

SIGN_INS: Final = 2
"""Sign-ins that are judged at once; a failed one keeps its place for a while."""

_CLIENT_ID: Final = "kbroker-console"


# --- Failed sign-ins ------------------------------------------------------------------------------------------------

FREE: Final = 3
"""Failures after which there is nothing to wait for: people mistype."""

FIRST_SECONDS: Final = 5.0
LONGEST_SECONDS: Final = 300.0
MAX_REMEMBERED: Final = 10_000


@dataclass(slots=True)
class _Failures:
    count: int
    until: float


class BackOff:
    """Failed sign-ins by address and user: from the fourth on, each doubles the wait, up to five minutes.

    By both, so that nobody can keep a user out from another address.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[tuple[str, str], _Failures] = {}

    def wait(self, address: str, user: str) -> float:
        """Seconds until the next try is judged; 0 if it may be now."""
        known = self._failures.get((address, user))
        return 0.0 if known is None else max(known.until - self._clock(), 0.0)

    def failed(self, address: str, user: str) -> None:
        """Count a failure; the oldest is forgotten when there are too many."""
        known = self._failures.pop((address, user), None)
        count = 1 if known is None else known.count + 1
        seconds = 0.0 if count <= FREE else exponential_backoff(FIRST_SECONDS, count - FREE - 1, LONGEST_SECONDS)
        while len(self._failures) >= MAX_REMEMBERED:
            del self._failures[next(iter(self._failures))]
        self._failures[address, user] = _Failures(count, self._clock() + seconds)

    def succeeded(self, address: str, user: str) -> None:
        """Forget the failures."""
        self._failures.pop((address, user), None)


# --- Keys that looks have met ---------------------------------------------------------------------------------------

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


# --- The console ----------------------------------------------------------------------------------------------------


def _registry(settings: RegistrySettings) -> tuple[SchemaRegistry, RecordDecoder]:
    from kbroker.client.schemas.decoder import RecordDecoder
    from kbroker.client.schemas.registry import SchemaRegistry

    registry = SchemaRegistry(settings)
    # A registry that does not answer is told beside each record, and the page goes on.
    return registry, RecordDecoder(registry, goes_on=True)


class Console:
    """The objects that all requests share."""

    def __init__(self, settings: ConsoleSettings, clusters: Sequence[tuple[str, str]] = ()) -> None:
        """``clusters``: the names of all that the page shows, with the paths of their pages."""
        self.settings = settings
        self.clusters = clusters
        self.copies = Copies()
        self.sessions = Sessions(self.copies.end)
        self.limiter = trio.CapacityLimiter(THREADS)
        self.tails = trio.CapacityLimiter(TAILS)
        self.exports = trio.CapacityLimiter(EXPORTS)
        self.sign_ins = trio.CapacityLimiter(SIGN_INS)
        self.back_off = BackOff()
        self.seen_keys = SeenKeys()
        self.faults = None if settings.faults_fd is None else FaultChannel(settings.faults_fd)
        self.watching = Watching(settings.explorers) if settings.explorers else None
        self.registry: SchemaRegistry | None = None
        self.decoder: RecordDecoder | None = None
        """The schema registry, and what decodes records by it, if there is one."""
        if settings.registry is not None:
            self.registry, self.decoder = _registry(settings.registry)
        self._everybody = None if settings.sign_in else self.view_of(settings.properties)

    def view_of(self, properties: ClientProperties | None) -> View:
        """The cluster as whoever the properties name sees it."""
        return View(Cluster(partial(self._client, properties), self.limiter))

    def _client(self, properties: ClientProperties | None) -> Client:
        return Client(
            self.settings.addresses,
            client_id=(properties and properties["client.id"]) or _CLIENT_ID,
            timeout=self.settings.timeout,
            security=None if properties is None else security_of(properties),
        )

    def begin_session(self) -> Session:
        """A session of a browser that has none: of everybody, or of nobody yet where users sign in."""
        return self.sessions.begin(self._everybody)
