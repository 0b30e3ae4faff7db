"""A server's side of the conversation around a mechanism: handshake, authentication, and both again (KIP-368).

Rules and texts are those of Kafka's ``SaslServerAuthenticator``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from kbroker.errors import ErrorCode
from kbroker.security.principal import ANONYMOUS, KafkaPrincipal
from kbroker.security.sasl.mechanism import SaslAuthenticationError, SaslError, SaslServer
from kbroker.wire.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

REAUTHENTICATION_INTERVAL = 1.0
"""Seconds between the beginnings of two re-authentications at least (``KafkaChannel``)."""


class OfferedMechanism(NamedTuple):
    """A mechanism of a listener. ``max_reauth_ms`` is its ``connections.max.reauth.ms``, 0 for none."""

    make_server: Callable[[], SaslServer]
    max_reauth_ms: int
    make_server_of: Callable[[str], SaslServer] | None = None
    """Makes it instead of ``make_server`` where it is to know the client's address."""


class SaslConversation:
    """One connection's authentication; the connection keeps it for the next one."""

    def __init__(
        self, mechanisms: Mapping[str, OfferedMechanism], now: Callable[[], float], wall_clock_ms: Callable[[], int]
    ) -> None:
        """``mechanisms`` may change: a client logs in, for the first time or again, by those that hold then.

        ``now`` gives seconds of a clock that is never set; ``wall_clock_ms`` milliseconds since 1970.
        """
        self._mechanisms = mechanisms
        self._now = now
        self._wall_clock_ms = wall_clock_ms
        self._chosen = ""
        """The mechanism of a handshake that no token has followed yet."""
        self._server: SaslServer | None = None
        self._max_reauth_ms = 0
        self._refusal = ""
        self._is_waiting = False
        self._began_at: float | None = None
        self.client_host = ""
        """The client's address, without its port."""
        self.principal: KafkaPrincipal = ANONYMOUS
        self.mechanism = ""
        """That by which the client has authenticated; empty before it has."""
        self.expires_at: float | None = None
        """When the session ends, by ``now``; None if it does not."""
        self.failure: str | None = None
        """The reason why the client is let in no more. It holds no secret."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when a re-authentication has succeeded or failed."""

    @property
    def is_authenticated(self) -> bool:
        """Whether the client has been let in once, whatever came later."""
        return bool(self.mechanism)

    @property
    def _authentication(self) -> str:
        return "re-authentication" if self.mechanism else "authentication"

    def may_authenticate_again(self) -> bool:
        """Whether a handshake may begin a re-authentication now: only where sessions end, and not at once again."""
        if self.expires_at is None or self.failure is not None or self._is_waiting:
            return False
        return self._began_at is None or self._now() >= self._began_at + REAUTHENTICATION_INTERVAL

    @property
    def is_in_exchange(self) -> bool:
        """Whether a handshake has begun an authentication that has not ended."""
        return (self._server is not None or bool(self._chosen or self._refusal)) and self.failure is None

    def handshake(self, mechanism: str) -> SaslHandshakeResponse:
        """Choose a mechanism. ``failure`` is set, and the response to be sent, if the listener does not have it."""
        names = list(self._mechanisms)
        if mechanism not in self._mechanisms:
            self._fail("Unsupported SASL mechanism")
            return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=names)
        if self.mechanism:
            self._began_at = self._now()
        if self.mechanism and self.mechanism != mechanism:
            self._refusal = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication"
                f" of mechanism '{self.mechanism}'"
            )
        else:
            self._chosen, self._server, self._refusal = mechanism, None, ""
        return SaslHandshakeResponse(mechanisms=names)

    def _begin(self) -> SaslServer:
        """The server's side of the chosen mechanism, as the listener has it now. ``SaslError`` if there is none."""
        offered, self._chosen = self._mechanisms.get(self._chosen), ""
        if offered is None:
            raise SaslError("there was no handshake")
        self._max_reauth_ms, of_host = offered.max_reauth_ms, offered.make_server_of
        return offered.make_server() if of_host is None else of_host(self.client_host)

    async def authenticate(self, token: bytes) -> SaslAuthenticateResponse:
        """The answer to a token; with ``failure`` set it tells the client no more than Kafka does."""
        try:
            answer = await self.take(token)
        except SaslAuthenticationError as error:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(error), auth_bytes=b""
            )
        except SaslError:
            message = self.failure
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=message, auth_bytes=b""
            )
        lifetime = 0
        if self._server is None and self.expires_at is not None:
            lifetime = max(0, round((self.expires_at - self._now()) * 1000))
        return SaslAuthenticateResponse(error_message="", auth_bytes=answer, session_lifetime_ms=lifetime)

    async def take(self, token: bytes) -> bytes:
        """The bare answer to a bare token, as after a handshake of version 0. ``SaslError``, and ``failure`` is set."""
        server = self._server
        try:
            if self._refusal:
                raise SaslAuthenticationError(self._refusal)
            if server is None:
                server = self._server = self._begin()
            self._check_turn()
            answer = server.respond(token)
            if not isinstance(answer, bytes):
                answer = await self._awaited(answer)
            if server.is_done:
                self._complete(server)
            return answer
        except SaslAuthenticationError as error:
            self._fail(str(error))
            self.detail = error.detail
            raise
        except SaslError as error:
            name = server.mechanism if server is not None else self.mechanism
            self._fail(
                f"Authentication failed during {self._authentication} due to invalid credentials"
                f" with SASL mechanism {name}"
            )
            self.detail = str(error)
            raise

    def _check_turn(self) -> None:
        if self._is_waiting:
            raise SaslError("a token came before the answer to the one before it")

    async def _awaited(self, answer: Awaitable[bytes]) -> bytes:
        self._is_waiting = True
        try:
            got = await answer
        finally:
            self._is_waiting = False
        if self.failure is not None:
            raise SaslError(self.failure)
        return got

    detail = ""
    """More of the failure, for the log alone. It holds no secret."""

    def _complete(self, server: SaslServer) -> None:
        principal = server.principal
        if self.mechanism and principal != self.principal:
            raise SaslAuthenticationError(
                "Cannot change principals during re-authentication from"
                f" {self.principal.principal_type}.{self.principal.name}: {principal.principal_type}.{principal.name}"
            )
        now = self._now()
        limits: list[float] = []
        if self._max_reauth_ms > 0:
            limits.append(self._max_reauth_ms / 1000)
        if server.expires_at_ms is not None:
            limits.append(max(0.0, (server.expires_at_ms - self._wall_clock_ms()) / 1000))
        self.expires_at = now + min(limits) if limits else None
        was_authenticated = self.is_authenticated
        self.principal, self.mechanism, self._server = principal, server.mechanism, None
        if was_authenticated:
            self.on_change()

    def _fail(self, reason: str) -> None:
        if self.failure is None:
            self.failure = reason
        self._chosen, self._server = "", None
        if self.is_authenticated:
            self.on_change()
