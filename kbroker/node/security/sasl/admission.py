"""SASL as a step of a listener's admission, and the end of sessions that are not renewed (KIP-368).

Until a client has authenticated, nothing of it is read but ApiVersions, SaslHandshake and SaslAuthenticate, one frame
at a time and not a byte beyond: what follows is the connection's. Rules are those of ``SaslServerAuthenticator``.
"""

from __future__ import annotations

import enum
import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import trio

from kbroker.errors import ErrorCode
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import Registration
from kbroker.node.serving.admission import AdmissionRefused, Admitted
from kbroker.security.principal import ANONYMOUS
from kbroker.security.sasl.conversation import OfferedMechanism, SaslConversation
from kbroker.security.sasl.mechanism import SaslError
from kbroker.security.shown import shown
from kbroker.wire.compiler import decode, encode
from kbroker.wire.errors import WireError
from kbroker.wire.headers import RequestHeader, decode_request_header, encode_response_header
from kbroker.wire.registry import API_KEYS

if TYPE_CHECKING:
    from kbroker.handlers.common.context import Services
    from kbroker.node.serving.connection import Connection
    from kbroker.runtime.env import Stream

logger = logging.getLogger(__name__)

SASL_HANDSHAKE_KEY = 17
API_VERSIONS_KEY = 18
SASL_AUTHENTICATE_KEY = 36

_RENEWING = (SASL_HANDSHAKE_KEY, SASL_AUTHENTICATE_KEY)

MAX_VERSIONS_REQUESTS = 10
"""ApiVersions requests of a client before its handshake. Clients send one, and another in a version that is served."""

MAX_EARLY_FRAME = 64 * 1024
"""Bytes of a frame before a token is due: ApiVersions and SaslHandshake are far smaller."""

MAX_ILLEGAL_FRAME = 4 * 1024
"""Bytes of a request of another API that is read for its answer: reading and answering a larger one costs too much."""

FREE_FRAME = 4 * 1024
"""Bytes that each client may have beside those, so that nobody's large frames keep others from logging in.

There is room for so much at first: a frame's buffer grows with what has come, not with what is declared.
"""


class FailedAuthentication(AdmissionRefused):
    """The client is let in no more. ``reply`` tells it why, once it has waited."""

    def __init__(self, reason: str, reply: bytes | None = None) -> None:
        super().__init__(reason)
        self.reply = reply


class SaslAdmission:
    """The step of one listener (:class:`~kbroker.node.serving.admission.AdmissionStep`)."""

    def __init__(
        self,
        mechanisms: Mapping[str, OfferedMechanism],
        *,
        services: Services,
        table: Mapping[int, Registration],
        listener_name: str,
        is_controller: bool,
        max_receive_bytes: int,
        failure_delay: float,
    ) -> None:
        """``table`` holds the listener's APIs; ``failure_delay``: seconds before a client that failed is told."""
        self.mechanisms = mechanisms
        self.services = services
        self.table = table
        self.listener_name = listener_name
        self.is_controller = is_controller
        self.max_receive_bytes = max_receive_bytes
        self._failure_delay = failure_delay
        self._held_bytes = 0

    async def admit(self, client: Admitted) -> None:
        """Authenticate; the client's principal is set then, and its session.

        Whatever fails is told, and ends the connection, after the wait of a failed authentication.
        """
        exchange = _Exchange(self, client)
        try:
            await self._authenticate(client, exchange)
        except BaseException:
            if self.services.tap is not None:
                self.services.tap.login_failed(exchange)
            raise

    async def _authenticate(self, client: Admitted, exchange: _Exchange) -> None:
        try:
            while not exchange.conversation.is_authenticated:
                await client.has_sent()
                await _write(client.stream, await self._answer(client.stream, exchange))
        except AdmissionRefused as refused:
            # Without its traceback, which would hold the frame for as long as the client waits.
            failure = FailedAuthentication(str(refused), getattr(refused, "reply", None))
            failure.kind = "credentials" if exchange.conversation.failure is not None else refused.kind
        else:
            self._let_in(client, exchange)
            return
        client.extend_limit(self._failure_delay)
        await trio.sleep(self._failure_delay)
        if failure.reply is not None:
            await _write(client.stream, failure.reply)
        raise failure

    def _let_in(self, client: Admitted, exchange: _Exchange) -> None:
        client.principal = exchange.conversation.principal
        client.mechanism = exchange.conversation.mechanism
        client.session = exchange.conversation
        if exchange.conversation.expires_at is not None:
            session = exchange.conversation
            client.keeper = lambda connection: _Keeper(session, self._failure_delay, connection).keep

    async def _answer(self, stream: Stream, exchange: _Exchange) -> bytes:
        """The answer to the client's next frame. Its bytes count until then: a mechanism may wait for others."""
        try:
            frame = await self._frame(stream, exchange)
            tap = self.services.tap
            if tap is None or not tap.is_watched or exchange.has_bare_tokens:
                return await exchange.take(frame)
            return await tap.login(exchange, frame, exchange.take(frame), exchange.shown_api_keys)
        finally:
            self._held_bytes -= exchange.held_bytes
            exchange.held_bytes = 0

    async def _frame(self, stream: Stream, exchange: _Exchange) -> bytes:
        """The client's next frame of no more bytes than are due; ``AdmissionRefused`` for any other."""
        limit = exchange.max_bytes
        size = int.from_bytes(await self._read(stream, 4, exchange), "big", signed=True)
        if 0 <= size <= limit:
            return await self._read(stream, size, exchange)
        raise AdmissionRefused(
            f"Failing SASL authentication due to invalid receive size ({size} bytes; at most {limit} are due,"
            f" and sasl.server.max.receive.size is {self.max_receive_bytes})"
        )

    async def _read(self, stream: Stream, size: int, exchange: _Exchange) -> bytes:
        """Exactly this many bytes; ``OSError`` if the client ends before."""
        buffer = bytearray(min(size, FREE_FRAME))
        received = 0
        while received < size:
            if received == len(buffer):
                grown = min(size, 2 * received) - received
                if self._held_bytes + grown > self.services.env.budgets.unauthenticated_bytes:
                    raise AdmissionRefused("the listener holds too many bytes of clients that have not authenticated")
                self._held_bytes += grown
                exchange.held_bytes += grown
                buffer.extend(bytes(grown))
            with memoryview(buffer) as view:
                try:
                    count = stream.recv_into(view[received:])
                except BlockingIOError:
                    count = -1
            if count < 0:
                await stream.wait_readable()
            elif count == 0:
                raise ConnectionResetError("the client has closed the connection")
            else:
                received += count
                if received < size:
                    await trio.lowlevel.checkpoint()
        return bytes(buffer)


class _State(enum.Enum):
    VERSIONS_OR_HANDSHAKE = enum.auto()
    HANDSHAKE = enum.auto()
    AUTHENTICATE = enum.auto()
    BARE_TOKENS = enum.auto()
    """After a handshake of version 0: frames are tokens."""


class _Exchange:
    """One client's frames, in their order. Takes the place of its connection for ApiVersions."""

    def __init__(self, listener: SaslAdmission, client: Admitted) -> None:
        services = listener.services
        self.conversation = SaslConversation(listener.mechanisms, trio.current_time, services.env.wall_clock_ms)
        self.conversation.client_host = str(client.stream.peer[0])
        self._listener = listener
        self._state = _State.VERSIONS_OR_HANDSHAKE
        self._versions_requests = 0
        self.held_bytes = 0
        """Those of the listener's bytes of strangers that are this client's."""
        self.principal = ANONYMOUS
        self.session: object | None = None
        self.is_controller = listener.is_controller
        self.listener_name = listener.listener_name
        self.peer = f"{client.stream.peer[0]}:{client.stream.peer[1]}"
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"

    @property
    def has_bare_tokens(self) -> bool:
        """Whether the client's frames are tokens, and no requests."""
        return self._state is _State.BARE_TOKENS

    @property
    def shown_api_keys(self) -> tuple[int, ...]:
        """The APIs that the next frame may be a request of; another frame may be a token that comes too early."""
        early = SASL_HANDSHAKE_KEY, API_VERSIONS_KEY
        return (*early, SASL_AUTHENTICATE_KEY) if self._state is _State.AUTHENTICATE else early

    @property
    def max_bytes(self) -> int:
        """Bytes that the next frame may have."""
        limit = self._listener.max_receive_bytes
        has_token = self._state in (_State.AUTHENTICATE, _State.BARE_TOKENS)
        return limit if has_token else min(limit, MAX_EARLY_FRAME)

    async def take(self, frame: bytes) -> bytes:
        """Returns the answer to a frame, with its size; ``AdmissionRefused`` or ``WireError`` ends the rest."""
        if self._state is _State.BARE_TOKENS:
            return await self._take_token(frame)
        header, offset = decode_request_header(frame)
        if self._state is _State.AUTHENTICATE:
            return await self._authenticate(frame, header, offset)
        if header.api_key == SASL_HANDSHAKE_KEY:
            return self._handshake(frame, header, offset)
        if header.api_key != API_VERSIONS_KEY:
            raise AdmissionRefused(f"Unexpected Kafka request of API key {header.api_key} during SASL handshake.")
        if self._state is not _State.VERSIONS_OR_HANDSHAKE:
            raise AdmissionRefused("Unexpected ApiVersions request received during SASL authentication")
        return self._api_versions(frame, header, offset)

    async def _take_token(self, token: bytes) -> bytes:
        try:
            return _sized(await self.conversation.take(token))
        except SaslError as error:
            raise AdmissionRefused(self._reason(error)) from None

    async def _authenticate(self, frame: bytes, header: RequestHeader, offset: int) -> bytes:
        if header.api_key != SASL_AUTHENTICATE_KEY:
            raise FailedAuthentication(
                f"Unexpected Kafka request of API key {header.api_key} during SASL authentication.",
                self._illegal_state(frame, header, offset),
            )
        request = self._decode(frame, header, offset)
        response = await self.conversation.authenticate(bytes(request.auth_bytes))
        reply = _reply(header, response)
        if self.conversation.failure is not None:
            raise FailedAuthentication(self._reason(), reply)
        return reply

    def _handshake(self, frame: bytes, header: RequestHeader, offset: int) -> bytes:
        request = self._decode(frame, header, offset)
        reply = _reply(header, self.conversation.handshake(request.mechanism))
        if self.conversation.failure is not None:
            raise FailedAuthentication(self.conversation.failure, reply)
        self._state = _State.AUTHENTICATE if header.api_version else _State.BARE_TOKENS
        return reply

    def _api_versions(self, frame: bytes, header: RequestHeader, offset: int) -> bytes:
        from kbroker.handlers.api_versions import unsupported_version

        self._versions_requests += 1
        if self._versions_requests > MAX_VERSIONS_REQUESTS:
            raise AdmissionRefused(f"more than {MAX_VERSIONS_REQUESTS} ApiVersions requests before the SASL handshake")
        if header.api_version not in self._listener.table[API_VERSIONS_KEY].versions:
            return _reply(header._replace(api_version=0), unsupported_version())
        request = self._decode(frame, header, offset)
        connection: Any = self
        context = RequestContext(header, connection, self._listener.services)
        response = self._listener.table[API_VERSIONS_KEY].handle(request, context)
        if response.error_code == ErrorCode.NONE:
            self._state = _State.HANDSHAKE
        return _reply(header, response)

    def _decode(self, frame: bytes, header: RequestHeader, offset: int) -> Any:
        registration = self._listener.table[header.api_key]
        if header.api_version not in registration.versions:
            raise AdmissionRefused(f"version {header.api_version} of API key {header.api_key} is not served")
        request, _ = decode(registration.request_class, header.api_version, memoryview(frame), offset)
        return request

    def _illegal_state(self, frame: bytes, header: RequestHeader, offset: int) -> bytes | None:
        """The answer to a request of another API, in that API's form; None if it cannot be read or is too large."""
        from kbroker.handlers.common.error_answers import error_answer

        if len(frame) > MAX_ILLEGAL_FRAME:
            return None
        registration = self._listener.table.get(header.api_key)
        if registration is None or header.api_version not in registration.versions:
            return None
        try:
            request = self._decode(frame, header, offset)
            response = error_answer(header.api_key, header.api_version, request, ErrorCode.ILLEGAL_SASL_STATE)
            return _reply(header, API_KEYS[header.api_key].response() if response is None else response)
        except (WireError, AdmissionRefused):
            return None

    def _reason(self, error: SaslError | None = None) -> str:
        """The reason for the log, which is told more than the client."""
        reason, detail = self.conversation.failure or str(error), self.conversation.detail
        return f"{reason} ({detail})" if detail else reason


def _sized(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def _reply(header: RequestHeader, response: object) -> bytes:
    key, version = header.api_key, header.api_version
    return _sized(encode_response_header(key, version, header.correlation_id) + encode(response, version))


async def _write(stream: Stream, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            written = stream.send(rest)
            rest = rest[written:]
            if rest:
                await trio.lowlevel.checkpoint()
        except BlockingIOError:
            await stream.wait_writable()


class _Keeper:
    """Ends what a connection serves when its session ends."""

    def __init__(self, session: SaslConversation, failure_delay: float, connection: Connection) -> None:
        """Made before ``connection`` serves anything: what its session has to say is heard from the first request."""
        self._session = session
        self._failure_delay = failure_delay
        self._connection = connection
        self._changed = trio.Event()
        session.on_change = self._on_change

    def _on_change(self) -> None:  # at once: the client's next request may have come already
        self._connection.restrict(None if self._session.failure is None else ())
        self._changed.set()

    async def keep(self) -> None:
        """Serve nothing once the session has ended, but for what renews it. Runs for as long as the connection.

        A re-authentication that fails ends the connection, after the wait of any failed authentication.
        """
        session, connection = self._session, self._connection
        with trio.CancelScope() as scope:
            connection.when_closed.append(scope.cancel)
            if connection.closed:
                return
            while session.failure is None:
                changed = self._changed = trio.Event()
                with trio.move_on_at(math.inf if session.expires_at is None else session.expires_at):
                    await changed.wait()
                if not changed.is_set():
                    connection.restrict(_RENEWING)
                    await changed.wait()
            logger.info("closing connection from %s: %s", connection.peer, shown(session.failure, 500))
            await trio.sleep(self._failure_delay)
            connection.end()
