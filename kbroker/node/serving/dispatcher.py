"""From a request frame to its reply: a shortcut, or decoding and the API's handler; and what happens when that fails.

There are two ways in. `Dispatcher.serve_now` serves what never waits and may be called by the poller's task;
`Dispatcher.serve` is for the connection's own task, and serves what that has left.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Collection, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any

from kbroker.errors import ErrorCode
from kbroker.handlers.api_versions import unsupported_version
from kbroker.handlers.common.context import CloseConnection, MeteredContext, RequestContext
from kbroker.handlers.common.forwarding import NotForwarded, by_controller, error_codes
from kbroker.handlers.registration import Forwarding, Registration
from kbroker.node.serving.request_wait import ConnectionLost
from kbroker.node.shortcuts.cache import ShortcutCache
from kbroker.wire.compiler import decode
from kbroker.wire.errors import WireError
from kbroker.wire.headers import decode_request_header

if TYPE_CHECKING:
    from kbroker.handlers.common.context import Services
    from kbroker.handlers.services.connection import Connection
    from kbroker.handlers.services.quotas import DispatchedMeter
    from kbroker.node.serving.long_request import LongRequest
    from kbroker.node.serving.reply_queue import ReplyQueue
    from kbroker.runtime.round import Round
    from kbroker.security.principal import KafkaPrincipal
    from kbroker.security.quotas.entities import ClientLimits

logger = logging.getLogger(__name__)

API_VERSIONS_KEY = 18

_PREFIX = Struct(">hhi")


class Dispatcher:
    """Serves the requests of one connection, each into the connection's ``ReplyQueue``.

    ``table`` holds the APIs of the listener, by key.
    """

    __slots__ = (
        "_all",
        "_connection",
        "_known_limits",
        "_long_bytes",
        "_quotas",
        "_replies",
        "_services",
        "_shortcuts",
        "_table",
        "requests",
        "surplus_bytes",
    )

    def __init__(
        self, connection: Connection, services: Services, table: Mapping[int, Registration], replies: ReplyQueue
    ) -> None:
        self._connection = connection
        self._services = services
        self._quotas = services.quotas
        self._long_bytes = services.env.budgets.long_request_bytes
        self._all = table
        self._table = table
        self._replies = replies
        self._shortcuts = ShortcutCache(services.authorizer)
        self._known_limits: tuple[object, bytes, KafkaPrincipal, ClientLimits | None] | None = None
        """The quotas as they were looked up last: their state, client id, principal, and what holds for them."""
        self.requests = 0
        """Requests so far."""
        self.surplus_bytes = 0
        """Bytes that followed requests within their frames. They are ignored, as Kafka does."""

    def forget_requests(self) -> None:
        """Forget what earlier requests have left: the connection has ended, or its client has authenticated again."""
        self._shortcuts.clear()

    def restrict(self, api_keys: Collection[int] | None) -> None:
        """Serve only these APIs from the next request on, and end the connection with any other; None for all."""
        self._table = self._all if api_keys is None else {key: self._all[key] for key in api_keys}

    def serve_now(self, frame: memoryview, round: Round | None = None) -> bool:
        """Serve a request whose handler never waits; false, and nothing done, if it is not one.

        ``round`` is the crowded round of the poller that the request came in. ``CloseConnection`` ends the connection.
        """
        api_key, version, correlation_id = _PREFIX.unpack_from(frame)
        registration = self._table.get(api_key)
        if registration is None or registration.is_async:
            return False
        if (
            len(frame) > self._long_bytes
            and self._services.authorizer is not None
            and registration.prefetch_permissions is not None
        ):
            return False  # what it names is asked about in turns
        if self._quotas.clients is not None and self._limits(frame) is not None:
            return False  # the connection's own task measures it, and waits
        shortcut = self._shortcuts.known.get(api_key)
        if shortcut is not None:
            reply = shortcut.try_serve(frame, round)
            if reply is not None:
                self.requests += 1
                shortcut.tally.served += 1
                if not isinstance(reply, bytes):
                    self._replies.delay(reply, api_key, version, correlation_id)
                elif self._replies.slots:
                    self._replies.add([reply])
                else:
                    self._replies.parts.append(reply)
                return True
        if version not in registration.versions:
            return False
        self.requests += 1
        request, context = self._decode(frame, registration, round)
        try:
            response: Any = registration.handle(request, context)
        except CloseConnection:
            raise
        except Exception as error:
            response = self._failed(request, context, error)
        else:
            self._shortcuts.on_unrecognised(api_key, frame, request, response, context)
        self._replies.answer(response, api_key, version, correlation_id)
        return True

    async def serve(self, frame: memoryview) -> None:
        """Serve a request that `serve_now` has not served, waiting as long as its handler does.

        ``WireError``: it is none that the listener serves. ``CloseConnection`` and ``ConnectionLost`` as from handlers.
        """
        self.requests += 1
        api_key, version, correlation_id = _PREFIX.unpack_from(frame)
        registration = self._registration(api_key, version)
        if registration is None:
            # KIP-511: whatever the version of its ApiVersions, the client can read v0.
            self._replies.answer(unsupported_version(), api_key, 0, correlation_id)
            return
        long = None
        is_long = len(frame) > self._long_bytes
        if is_long or registration.large_answers is not None:
            long = self._long_request(registration, is_long)
            await long.give_way()
        meter = None if self._quotas.clients is None else self._meter(frame, registration)
        request, context = self._decode(frame, registration, None)
        if meter is not None:
            context = MeteredContext(context.header, context.connection, context.services, meter)
            meter.stop()
        parts, throttle_ms = None, 0
        try:
            response = await self._handle(registration, request, context, meter, long)
            if long is not None:
                await long.answered(response)
            if meter is not None:
                throttle_ms = meter.finish(api_key, request, response, len(frame))
            if long is not None:
                parts = await long.encoded(api_key, version, correlation_id, response)
        finally:
            if long is not None:
                long.end()
        self._replies.answer(response, api_key, version, correlation_id, parts)
        if meter is not None:
            meter.close()
        if throttle_ms:  # nothing more is read from the client meanwhile
            await self._connection.mute(throttle_ms / 1000)

    def _registration(self, api_key: int, version: int) -> Registration | None:
        """The API of a request; None for a version of ApiVersions that is not served. ``WireError`` for another one."""
        registration = self._table.get(api_key)
        if registration is None:
            if api_key in self._all:
                raise CloseConnection("its session has ended")
            raise WireError(f"API key {api_key} is not served on this listener")
        if version in registration.versions:
            return registration
        if api_key == API_VERSIONS_KEY:
            return None
        low, high = registration.versions
        raise WireError(f"version {version} of API key {api_key} is not served ({low} to {high} are)")

    # --- clients with a quota ---------------------------------------------------------------------------------

    def _limits(self, frame: memoryview) -> ClientLimits | None:
        """The quotas of the client that a request names; None if it has none."""
        quotas = self._quotas.clients
        assert quotas is not None
        length = int.from_bytes(frame[8:10], "big", signed=True)
        client_id, principal = frame[10 : 10 + max(length, 0)].tobytes(), self._connection.principal
        known = self._known_limits
        state = quotas.state
        if known is None or known[0] is not state or known[1] != client_id or known[2] is not principal:
            limits = quotas.limits(principal, str(client_id, "utf-8", "replace"))
            known = self._known_limits = state, client_id, principal, limits
        return known[3]

    def _meter(self, frame: memoryview, registration: Registration) -> DispatchedMeter | None:
        """A meter of a request, if its client has a quota. Brokers and controllers among themselves have none."""
        quotas = self._quotas.clients
        assert quotas is not None
        if self._connection.is_controller and not registration.is_for_controller:
            return None
        limits = self._limits(frame)
        return None if limits is None else quotas.meter(limits)

    # --- any request ------------------------------------------------------------------------------------------

    async def _handle(
        self,
        registration: Registration,
        request: object,
        context: RequestContext,
        meter: DispatchedMeter | None,
        long: LongRequest | None,
    ) -> Any:
        """The handler's answer, or the error in its place; ``meter`` has its work alone."""
        try:
            if long is not None:
                await long.begin(request, context)
            if registration.is_async:
                work = answer_of(registration, request, context)
                return await (work if meter is None else meter.run(work))
            if meter is not None:
                meter.start()
            return registration.handle(request, context)
        except (CloseConnection, ConnectionLost):
            raise
        except Exception as error:
            return self._failed(request, context, error)
        finally:
            if meter is not None:
                meter.stop()

    def _decode(
        self, frame: memoryview, registration: Registration, round: Round | None
    ) -> tuple[object, RequestContext]:
        header, offset = decode_request_header(frame)
        request, end = decode(registration.request_class, header.api_version, frame, offset)
        if end != len(frame):
            self._count_surplus(header.api_key, header.api_version, len(frame) - end)
        return request, RequestContext(header, self._connection, self._services, round)

    def _long_request(self, registration: Registration, is_long: bool) -> LongRequest:
        from kbroker.node.serving.long_request import LongRequest  # with the first one

        return LongRequest(registration, self._services, is_long=is_long)

    def _failed(self, request: object, context: RequestContext, error: Exception) -> Any:
        """The answer to a request whose handler has raised; ``CloseConnection`` if its API has none. Logs mistakes."""
        from kbroker.handlers.common.error_answers import error_answer  # most nodes never need it
        from kbroker.security.authorizer.types import AuthorizerNotReady

        api_key, version = context.header.api_key, context.api_version
        if isinstance(error, NotForwarded | AuthorizerNotReady):
            code, reason = error.code, str(error)
        else:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            reason = code.name
            logger.error("API key %d v%d from %s failed", api_key, version, self._connection.peer, exc_info=error)
        response = error_answer(api_key, version, request, code)
        if response is None:
            raise CloseConnection(f"the request failed, and its API has no place to say so: {reason}")
        return response

    def _count_surplus(self, api_key: int, version: int, size: int) -> None:
        """Warn once of a client that declares more than it means, or writes a version that it does not name."""
        if not self.surplus_bytes:
            logger.warning(
                "%d bytes are left over after API key %d v%d from %s; they are ignored",
                size,
                api_key,
                version,
                self._connection.peer,
            )
        self.surplus_bytes += size


def answer_of(registration: Registration, request: Any, context: RequestContext) -> Awaitable[Any]:
    """The answer of an asynchronous handler, or the active controller's if the connection is to forward the request."""
    if registration.forwarding is not Forwarding.BY_CONNECTION or context.connection.is_controller:
        handled: Awaitable[Any] = registration.handle(request, context)
        return handled
    if registration.check is not None:
        registration.check(request)
    metadata = context.services.metadata
    return by_controller(
        metadata, lambda: metadata.forward(request, context), lambda: registration.handle(request, context), error_codes
    )
