"""The state of one console: its settings, its sessions, its limits, and the clients by which it asks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from kbroker.client import Client
from kbroker.client.properties import ClientProperties
from kbroker.client.security import security_of
from kbroker.tools.console.asking import THREADS, Cluster
from kbroker.tools.console.back_off import BackOff
from kbroker.tools.console.copies import Copies
from kbroker.tools.console.fault_channel import FaultChannel
from kbroker.tools.console.seen_keys import SeenKeys
from kbroker.tools.console.sessions import Session, Sessions, View
from kbroker.tools.console.settings import ConsoleSettings
from kbroker.tools.console.watching import Watching

if TYPE_CHECKING:
    from kbroker.client.schemas.decoder import RecordDecoder
    from kbroker.client.schemas.settings import RegistrySettings

TAILS: Final = 16
"""Live tails at once."""

EXPORTS: Final = 4
"""Exports at once."""

SIGN_INS: Final = 2
"""Sign-ins that are judged at once; a failed one keeps its place for a while."""

_CLIENT_ID: Final = "kbroker-console"


def _decoder(settings: RegistrySettings) -> RecordDecoder:
    from kbroker.client.schemas.decoder import RecordDecoder
    from kbroker.client.schemas.registry import SchemaRegistry

    # A registry that does not answer is told beside each record, and the page goes on.
    return RecordDecoder(SchemaRegistry(settings), goes_on=True)


class Console:
    """The objects that all requests share."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
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
        self.decoder = None if settings.registry is None else _decoder(settings.registry)
        """Decodes records by the schema registry, if there is one."""
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
