"""Asks the active controller on a node's behalf, in the same way whether that is another node or this one.

Another node is asked over the network (``controller_channel``). This node's own controller serves the same request by
the same handler, without a connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from kbroker.config import BrokerConfig
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.context import CloseConnection, ForwardedContext, OwnContext, RequestContext, Services
from kbroker.handlers.common.forwarding import NotForwarded
from kbroker.handlers.registration import CONTROLLER, registrations
from kbroker.node.controller.image_publisher import ImagePublisher
from kbroker.raft_metadata.controller.producer_ids import ProducerIdBlock
from kbroker.raft_metadata.raft.messages import Node
from kbroker.raft_metadata.raft.types import controller_listener
from kbroker.raft_metadata.topics import NewTopic
from kbroker.runtime.env import Network
from kbroker.security.principal import ANONYMOUS
from kbroker.wire.headers import RequestHeader
from kbroker.wire.schema import Request

if TYPE_CHECKING:
    from kbroker.handlers.services.connection import Awaited
    from kbroker.handlers.services.refused_batches import RefusedBatches
    from kbroker.handlers.services.requester import Requester
    from kbroker.node.controller.controller_channel import ControllerChannels

R = TypeVar("R")

logger = logging.getLogger(__name__)

TIMEOUT_MS = 5000
"""The time that a topic may take to be created, and then to be seen here."""


_PLAINTEXT = "PLAINTEXT"
_JUDGED = frozenset({33, 44})
"""AlterConfigs and IncrementalAlterConfigs."""

_NO_ANSWER = ErrorCode.UNKNOWN_SERVER_ERROR
"""To a client whose request the controller does not take from this broker: that is no business of the client's."""


def _header(request: Any, requester: Requester | None) -> RequestHeader:
    """The header of a request that this node makes, perhaps because of a client's."""
    key = int(type(request).api_key)
    version = registrations(CONTROLLER)[key].versions.highest
    if requester is None:
        return RequestHeader(key, version, 0, "local")
    return RequestHeader(key, version, requester.header.correlation_id, requester.header.client_id)


class InProcess:
    """Takes the place of a connection in requests that a node makes to its own controller."""

    def __init__(self, listener_name: str) -> None:
        self.listener_name = listener_name
        self.is_controller = True
        self.peer = "this node"
        self.principal = ANONYMOUS
        self.session: object | None = None
        self.closed = self.is_ending = False
        self.session_ended = False
        self.is_of_node = True
        self.refused_batches: RefusedBatches | None = None
        self.when_closed: list[Callable[[], None]] = []
        self.client_software_name = "kbroker"
        self.client_software_version = "1"
        self.has_pipelined_request = False

    def end(self) -> None:
        """Nothing has to be ended."""

    async def flush(self) -> None:
        """Nothing is written."""

    async def mute(self, seconds: float) -> None:
        """Nothing is read, either."""

    def reauthenticated(self, *, by_token: bool) -> None:
        """Nobody authenticates."""

    def hold_replies(self) -> None:
        """Nothing is served in a round here."""

    def replace_unsent(self, reply: bytes, response: object, version: int) -> None:
        """Nothing is served in a round here."""
        raise NotImplementedError

    async def wait_for(self, operation: Awaited, timeout: float, *, gives_way: bool = False) -> bool:
        """No API of the controller waits on its connection."""
        raise NotImplementedError


class ControllerClient:
    """A node's requests to the active controller, wherever that is."""

    def __init__(
        self,
        config: BrokerConfig,
        network: Network,
        images: ImagePublisher,
        *,
        is_local: Callable[[], bool],
        leader: Callable[[], Node | None],
        services: Callable[[], Services],
    ) -> None:
        """``is_local``: whether this node is the active controller; ``leader``: the node that is, as far as known.

        ``services`` gives the node's parts, for its own controller's handlers; they exist before the first request.
        """
        self._config = config
        self._network = network
        self._images = images
        self._is_local = is_local
        self._leader = leader
        self._services = services
        self._opened: ControllerChannels | None = None
        self._in_process = InProcess(controller_listener(config))
        self._refused_envelope: ErrorCode | None = None
        protocol = config.listener_security_protocol_map.get(controller_listener(config), _PLAINTEXT)
        self._has_name = protocol != _PLAINTEXT
        """Whether controllers may know this node by a name of its own."""

    @property
    def is_local(self) -> bool:
        """Whether the active controller is this node."""
        return self._is_local()

    @property
    def channels(self) -> ControllerChannels:
        """The connections to the active controller, if that is another node; opened with the first request."""
        if self._opened is None:
            # Imported here: a node alone in its quorum has nobody else to ask.
            from kbroker.node.controller.controller_channel import ControllerChannels

            self._opened = ControllerChannels(
                self._network, self._config.node_id, self._leader, self._config.request_timeout_ms / 1000
            )
        return self._opened

    async def ask(self, request: Request[R], timeout: float | None = None, *, is_standing: bool = False) -> R | None:
        """The active controller's response; None if it cannot be had within ``timeout`` seconds
        (``request.timeout.ms`` if that is None).

        ``is_standing`` is for registration and heartbeats, which have connections of their own.
        """
        if self._is_local():
            served: R | None = await self._serve(request)
            return served
        from kbroker.node.controller.controller_channel import Purpose

        return await self.channels.ask(request, Purpose.STANDING if is_standing else Purpose.OWN, timeout)

    async def forward(self, request: Request[R], requester: Requester) -> R | None:
        """Another node's response, as the active controller, to a client's request; None if it cannot be had.

        ``NotForwarded`` if too many others are asked, or the controller takes no Envelope of this node;
        ``CloseConnection`` if it does not serve the version. None of them delays the node's own requests.
        """
        if not self._tells_apart(requester):
            return await self.channels.forward(request, requester.header.api_version)
        from kbroker.node.controller.envelopes import opened, sealed

        answer = await self.channels.forward(sealed(request, requester))
        try:
            return None if answer is None else opened(answer, requester.header)
        except ApiError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                return None
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                # The controller was another when the client was told the versions; it is to ask for them again.
                raise CloseConnection("the active controller does not serve this version of the request") from error
            self._log_refused_envelope(error)
            raise NotForwarded("The active controller refuses requests of this broker.", _NO_ANSWER) from error

    def _tells_apart(self, requester: Requester) -> bool:
        """Whether a client may be somebody else to the controller than this node, so that it needs an Envelope.

        Where both are ANONYMOUS a request goes as it is, which takes less time. Whether this node has an authorizer is
        not enough to know: the controller may have one, and would take the client for this node. Quotas are for client
        ids, too. Some changes of configs are taken from the broker that has judged them, and not from its client.
        """
        services = self._services()
        return (
            self._has_name
            or requester.principal != ANONYMOUS
            or services.authorizer is not None
            or services.quotas.clients is not None
            or requester.header.api_key in _JUDGED
        )

    async def create_topics(
        self, topics: Sequence[NewTopic], requester: Requester | None = None
    ) -> Mapping[str, ApiError | None]:
        """Create topics because of a client's request; by name what is wrong, None if nothing.

        ``requester`` is that request: its principal is to be authorized. Without one this node asks on its own account
        (``AutoTopicCreationManager``). They are in this node's image then. ``ApiError`` NOT_CONTROLLER if the active
        controller cannot be reached.
        """
        from kbroker.wire.messages.topics import (
            CreatableReplicaAssignment,
            CreatableTopic,
            CreatableTopicConfig,
            CreateTopicsRequest,
        )

        request = CreateTopicsRequest(
            timeout_ms=TIMEOUT_MS,
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.num_partitions,
                    replication_factor=topic.replication_factor,
                    assignments=[
                        CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                        for index, brokers in topic.assignments
                    ],
                    configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
                )
                for topic in topics
            ],
        )
        response = await self._create(request, requester)
        if response is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "The active controller cannot be reached.")
        outcomes: dict[str, ApiError | None] = {
            result.name: ApiError(ErrorCode.of(result.error_code), result.error_message or "")
            if result.error_code
            else None
            for result in response.topics
        }
        created = {name for name, error in outcomes.items() if error is None}
        with trio.move_on_after(TIMEOUT_MS / 1000):
            await self._images.wait_for(lambda image: created <= image.topics.by_name.keys())
        return outcomes

    async def _create(self, request: Any, requester: Requester | None) -> Any:
        """The response to a CreateTopics; None if it cannot be had, ``ApiError`` if the controller does not take it."""
        if self._is_local():
            return await self._serve(request, requester)
        # Forwarded, as there may be very many clients.
        if requester is None or not self._tells_apart(requester):
            return await self.channels.forward(request)
        from kbroker.node.controller.envelopes import opened, sealed

        header = _header(request, requester)
        answer = await self.channels.forward(sealed(request, requester, header))
        return None if answer is None else opened(answer, header)

    async def allocate_producer_ids(self, broker_epoch: int) -> ProducerIdBlock:
        """A block of producer ids. ``ApiError`` if the controller grants none, or cannot be reached."""
        from kbroker.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest

        response = await self.ask(AllocateProducerIdsRequest(broker_id=self._config.node_id, broker_epoch=broker_epoch))
        if response is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "The active controller cannot be reached.")
        if response.error_code:
            raise ApiError(ErrorCode.of(response.error_code), "The controller grants no producer ids.")
        return ProducerIdBlock(response.producer_id_start, response.producer_id_len)

    async def _serve(self, request: Any, requester: Requester | None = None) -> Any:
        """The response of this node's own controller; a failure of its handler is the response's error.

        The request is the node's own, which nobody has to allow, unless a client's request has a part in it.
        """
        header = _header(request, requester)
        key, version = header.api_key, header.api_version
        entry = registrations(CONTROLLER)[key]
        services = self._services()
        context: RequestContext
        if requester is None:
            context = OwnContext(header, self._in_process, services)
        else:
            context = ForwardedContext(header, self._in_process, services, requester.principal, requester.host)
        try:
            return await entry.handle(request, context)
        except CloseConnection:
            raise
        except Exception as error:
            # As for any client of the controller: a mistake in one API ends no broker.
            from kbroker.handlers.common.error_answers import error_answer
            from kbroker.security.authorizer.types import AuthorizerNotReady

            if not isinstance(error, AuthorizerNotReady):
                logger.exception("API key %d of this node's own controller failed", key)
            return error_answer(key, version, request, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _log_refused_envelope(self, error: ApiError) -> None:
        """Warn that the controller takes no Envelope of this node, once until it gives another reason."""
        if error.code is not self._refused_envelope:
            self._refused_envelope = error.code
            logger.error("the active controller takes no client's request from this broker: %s", error)

    def on_role_changed(self) -> None:
        """The active controller may be another: give up requests that are under way to the last one."""
        leader = self._leader()
        if leader is not None and self._opened is not None:
            self._opened.turn_to(leader)

    def close(self) -> None:
        """End the idle connections."""
        if self._opened is not None:
            self._opened.close()
