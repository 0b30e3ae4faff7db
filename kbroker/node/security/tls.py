"""TLS of a node's listeners: the step of their admission, the step of connecting to other nodes, and reloading.

Stores are read again when their files or their dynamic properties have changed. Connections that are open go on with
what they began with; new ones get the new certificate.
"""

from __future__ import annotations

import datetime
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from kbroker.config.config_key import InvalidConfig
from kbroker.config.security.tls import TlsProperties
from kbroker.errors import FatalError
from kbroker.node.security.tls_stream import PIECE, TlsStream
from kbroker.node.serving.admission import AdmissionRefused, Admitted
from kbroker.security.principal import USER_TYPE, KafkaPrincipal
from kbroker.security.tls.material import Material, check_replacement, files, handshake_problem, load
from kbroker.security.tls.names import MappingRules, NoMatchingRule, subject_name
from kbroker.security.tls.stores import PropertyOverride, Values

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.node.security.handshake_thread import HandshakeThread
    from kbroker.runtime.env import Poller, Stream
    from kbroker.runtime.round import Round
    from kbroker.runtime.timing import Deadline

logger = logging.getLogger(__name__)

WARN_DAYS = 30
"""A certificate that expires within this time is warned of."""

_DAY_MS = 24 * 60 * 60 * 1000

REPEAT_SECONDS = 60.0
"""The least time between two warnings that another node cannot be connected to for the same reason."""


class ListenerTls:
    """The TLS of one listener, which may change while it runs."""

    def __init__(self, listener: str, config: BrokerConfig, *, serves: bool, connects: bool) -> None:
        """:class:`FatalError` if a property or a store cannot be used.

        ``serves``: the node has the listener. ``connects``: it reaches other nodes by theirs of that name.
        """
        self.listener = listener
        self._serves = serves
        self._connects = connects
        self.has_sasl = config.listener_security_protocol_map[listener] == "SASL_SSL"
        """Whether SASL says who a client is, whatever its certificate."""
        values = self.values(config)
        try:
            self._seen = _state(values)
            self.material = self._load(values)
            self.rules = MappingRules(values["ssl.principal.mapping.rules"])
        except InvalidConfig as error:
            raise FatalError(f"listener {listener}: {error.message}") from None
        self._warned_at_ms = -_DAY_MS
        self._is_in_use = False
        """False until the first image: properties set at run time before a restart are not validated again."""
        asks = serves and values["ssl.client.auth"] != "none"
        if asks and not self.material.has_trust_store:
            logger.warning(
                "listener %s has no trust store: it accepts certificates of every authority that this machine trusts",
                listener,
            )
        if serves and not asks and self.has_sasl and config.security()["ssl.client.auth"] != "none":
            logger.warning(
                "ssl.client.auth has no effect on listener %s, which has SASL: set listener.name.%s.ssl.client.auth",
                listener,
                listener.lower(),
            )

    def values(self, config: BrokerConfig) -> Values:
        """The listener's properties."""
        values = config.security(self.listener)
        if not self.has_sasl:
            return values
        # With SASL, only the listener's own property asks clients for certificates (KIP-684).
        own = config.values.get(f"listener.name.{self.listener.lower()}.ssl.client.auth", "none")
        return PropertyOverride(values, "ssl.client.auth", own)

    def _load(self, values: Values) -> Material:
        return load(values, serves=self._serves, connects=self._connects)

    def check(self, config: BrokerConfig) -> None:
        """Whether the listener can go on with other properties; :class:`InvalidConfig`. Reads files."""
        values = self.values(config)
        MappingRules(values["ssl.principal.mapping.rules"])
        check_replacement(self.material, self._load(values), values)

    def refresh(self, config: BrokerConfig) -> bool:
        """Read the stores again if the properties or the files have changed; whether it is so.

        :class:`InvalidConfig` if they cannot be used: once, and the listener goes on with what it has. For a thread.
        """
        values = self.values(config)
        state = _state(values)
        was_in_use, self._is_in_use = self._is_in_use, True
        if state == self._seen:
            return False
        self._seen = state
        material = self._load(values)
        rules = MappingRules(values["ssl.principal.mapping.rules"])
        if was_in_use:
            check_replacement(self.material, material, values)
        self.material, self.rules = material, rules
        self._warned_at_ms = -_DAY_MS
        return True

    def warn_of_expiry(self, now_ms: int) -> None:
        """Say once a day that the certificate is about to expire, or has."""
        expires = self.material.expires
        if expires is None or now_ms - self._warned_at_ms < _DAY_MS:
            return
        left = expires - datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
        if left > datetime.timedelta(days=WARN_DAYS):
            return
        self._warned_at_ms = now_ms
        if left < datetime.timedelta(0):
            logger.error("the certificate of listener %s has expired: %s", self.listener, expires.isoformat(" "))
        else:
            logger.warning(
                "the certificate of listener %s expires in %d days: %s",
                self.listener,
                left.days,
                expires.isoformat(" "),
            )


def _state(values: Values) -> tuple[object, ...]:
    """All that contexts are made from."""
    return files(values), [values[key.name] for key in TlsProperties.KEYS]


class TlsAdmission:
    """The step of an admission that makes TLS of a client's connection, and says who its certificate belongs to."""

    def __init__(self, tls: ListenerTls, scratch: bytearray, thread: HandshakeThread) -> None:
        """``thread`` is shared by the listeners.

        A step of a handshake takes as long as tens of requests. Those who are connected are served meanwhile, as
        OpenSSL needs no Python for it.
        """
        self._tls = tls
        self._scratch = scratch
        self._thread = thread

    async def admit(self, client: Admitted) -> None:
        """:class:`AdmissionRefused` or ``OSError`` if the handshake fails, or no mapping rule fits."""
        context = self._tls.material.server
        assert context is not None
        stream = TlsStream(client.stream, context, self._scratch)
        client.stream = stream
        try:
            await stream.handshake_by(self._thread.run)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            raise
        except ssl.SSLError as error:
            raise AdmissionRefused(f"SSL handshake failed: {handshake_problem(error)}") from None
        certificate = client.certificate = stream.peer_certificate()
        if certificate is not None and not self._tls.has_sasl:
            try:
                client.principal = KafkaPrincipal(USER_TYPE, self._tls.rules.name(subject_name(certificate)))
            except NoMatchingRule as error:
                raise AdmissionRefused(str(error)) from None
            except ValueError as error:
                raise AdmissionRefused(f"its certificate cannot be read: {error}") from None


class TlsConnect:
    """The step of connecting to another node that makes TLS of the connection, and checks that it is the node."""

    def __init__(self, tls: ListenerTls, scratch: bytearray, now: Callable[[], float]) -> None:
        self._tls = tls
        self._scratch = scratch
        self._now = now
        self._warned: dict[tuple[str, int], tuple[str, float]] = {}

    async def connected(self, stream: Stream, host: str, port: int) -> Stream:
        """``OSError`` if the handshake fails: it is another node, or one that this node does not trust."""
        context = self._tls.material.client
        assert context is not None
        secure = TlsStream(stream, context, self._scratch, server_hostname=host)
        try:
            await secure.handshake()
        except ssl.SSLError as error:
            secure.close()
            self._warn(host, port, handshake_problem(error))
            raise
        except BaseException:
            secure.close()
            raise
        self._warned.pop((host, port), None)
        return secure

    def _warn(self, host: str, port: int, problem: str) -> None:
        before, at = self._warned.get((host, port), ("", 0.0))
        now = self._now()
        if problem != before or now - at >= REPEAT_SECONDS:
            self._warned[host, port] = problem, now
            logger.warning("cannot connect to %s:%d with TLS: %s", host, port, problem)


def scratch() -> bytearray:
    """Room for one piece, which all TLS streams of an event loop may share."""
    return bytearray(PIECE)


class PendingPoller:
    """A poller of TLS streams: calls again for a stream that has bytes left which the system does not see."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self.round: Round = poller.round
        self._callbacks: dict[TlsStream, Callable[[], None]] = {}
        self._pending: set[TlsStream] = set()
        self._some = trio.Event()

    def register(self, stream: Any, callback: Callable[[], None], *, is_new: bool = False) -> None:
        def on_readable() -> None:
            callback()
            if stream.has_pending and self._callbacks.get(stream) is on_readable:
                self._call_again(stream)

        self._poller.register(stream, on_readable, is_new=is_new)
        self._callbacks[stream] = on_readable
        if stream.has_pending:
            self._call_again(stream)

    def unregister(self, stream: Any) -> None:
        self._callbacks.pop(stream, None)
        self._pending.discard(stream)
        self._poller.unregister(stream)

    def call_at(self, when: float, callback: Callable[[], None]) -> Deadline:
        return self._poller.call_at(when, callback)

    def call_off(self, deadline: Deadline) -> None:
        self._poller.call_off(deadline)

    def serve_readable(self) -> None:
        self._poller.serve_readable()

    def _call_again(self, stream: TlsStream) -> None:
        self._pending.add(stream)
        self._some.set()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._poller.run)
            while True:
                await self._some.wait()
                self._some = trio.Event()
                await trio.lowlevel.checkpoint()  # the others' turn
                pending, self._pending = self._pending, set()
                self.round.is_crowded = False
                self.round.turns.taken += len(pending)
                for stream in pending:
                    callback = self._callbacks.get(stream)
                    if callback is not None:
                        callback()
                self.round.end()
