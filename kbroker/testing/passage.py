"""Connections of clients passed on to the brokers of a foreign cluster, byte for byte but for what is told here.

Answers that name brokers name a :class:`Door` of this machine instead, and ApiVersions offers what :mod:`kbroker.wire`
knows. Requests that faults are for, or that are recorded, go through the :class:`Interceptor` of their door: to it, a
door is a node's listener, with handlers that pass requests on. SASL passes unread.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import trio

from kbroker.cores.replication.fetch_session import FINAL_EPOCH, INITIAL_EPOCH
from kbroker.cores.replication.fetch_view import PartitionKey, key_of
from kbroker.errors import ErrorCode, FatalError
from kbroker.handlers.api_versions import unsupported_version
from kbroker.handlers.common.context import CloseConnection, RequestContext, Services
from kbroker.handlers.registration import BROKER, Forwarding, Registration
from kbroker.observe.explorer.decoded import TopicNames, topic_ids_of
from kbroker.runtime.bound_ports import cannot_listen
from kbroker.testing.interception import NO_ACKS, Interceptor, is_about_all_topics
from kbroker.testing.link import OWN_CLIENT_ID
from kbroker.types import Uuid, uuid_from_str, uuid_to_str
from kbroker.wire.compiler import decode
from kbroker.wire.conversation import RESPONSE_LIMIT
from kbroker.wire.errors import WireError
from kbroker.wire.framing import FrameReader, request_parts, response_parts
from kbroker.wire.headers import RequestHeader, decode_request_header, decode_response_header, response_version
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kbroker.wire.primitives import Buffer
from kbroker.wire.registry import API_KEYS, API_VERSIONS_KEY, FETCH_KEY, ApiDescription, api_named
from kbroker.wire.schema import Message, VersionRange, struct_spec

if TYPE_CHECKING:
    from kbroker.handlers.services.connection import Connection

logger = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
CONNECT_SECONDS: Final = 10.0
SASL: Final = frozenset({17, 36})
"""Keys of the APIs that pass unread."""

_PRODUCE_KEY: Final = api_named("Produce").key
_METADATA_KEY: Final = api_named("Metadata").key
_MOST_SESSIONS: Final = 10_000
_WAYS: Final[dict[type[Any], tuple[str, ...]]] = {}


def offered(api: ApiDescription) -> VersionRange:
    """Returns the versions of an API that pass; of SaslHandshake only the one whose tokens are in requests."""
    return VersionRange(1, 1) if api.name == "SaslHandshake" else api.valid_versions


def names_a_broker(declared: type[Any]) -> bool:
    """Whether a message or struct is an address of a broker: its id, host and port."""
    names = {spec.name for spec in struct_spec(declared).fields}
    return {"host", "port"} <= names and not names.isdisjoint({"node_id", "broker_id"})


def ways_to_brokers(declared: type[Any]) -> tuple[str, ...]:
    """Returns the fields of a message or struct that lead to addresses of brokers."""
    ways = _WAYS.get(declared)
    if ways is None:
        inner = [(spec.name, (spec.type.element or spec.type).struct) for spec in struct_spec(declared).fields]
        ways = tuple(name for name, each in inner if each and (names_a_broker(each) or ways_to_brokers(each)))
        _WAYS[declared] = ways
    return ways


def brokers_named(message: Message) -> Iterator[Any]:
    """Yield the parts of a message that are addresses of brokers."""
    if names_a_broker(type(message)):
        yield message
    for name in ways_to_brokers(type(message)):
        value = getattr(message, name)
        for each in value if isinstance(value, list) else [value]:
            yield from brokers_named(each)


class KnownTopics(TopicNames):
    """The names and ids of a cluster's topics, as Metadata tells them; to faults, what a node's replica manager is."""

    def __init__(self) -> None:
        super().__init__()
        self.by_name: dict[str, Uuid] = {}

    def learn(self, message: Any) -> None:
        """Take what a Metadata answer tells."""
        super().learn(message)
        self.by_name.update({topic.name: topic.topic_id for topic in message.topics if topic.name})

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of a topic by its id; None for an unknown one."""
        return self.known.get(uuid_to_str(topic_id))

    def topic_id(self, name: str) -> Uuid | None:
        """The id of a topic by its name; None for an unknown one."""
        return self.by_name.get(name)


class PassedSessions:
    """The fetch sessions of a broker, as requests and answers tell them: their partitions are not named each time."""

    def __init__(self) -> None:
        self._known: dict[int, dict[PartitionKey, None]] = {}

    def partitions_of(self, session_id: int, session_epoch: int) -> list[PartitionKey]:
        """The partitions that a request reads without naming them."""
        return [] if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH) else list(self._known.get(session_id, ()))

    def answered(self, request: Any, response: Any) -> None:
        """Take what a Fetch and its answer change."""
        partitions = dict.fromkeys(self.partitions_of(request.session_id, request.session_epoch))
        for topic in request.topics:
            partitions.update(dict.fromkeys(key_of(topic.topic, topic.topic_id, p.partition) for p in topic.partitions))
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                partitions.pop(key_of(topic.topic, topic.topic_id, index), None)
        self._known.pop(request.session_id, None)
        if response.session_id and not response.error_code:
            self._known[response.session_id] = partitions
        if len(self._known) > _MOST_SESSIONS:
            del self._known[next(iter(self._known))]


class Gate:
    """The doors to all brokers of a cluster; one is opened for each broker that an answer names first."""

    def __init__(self, nursery: trio.Nursery, metadata_version: int, on_door: Callable[[Door], object]) -> None:
        self.metadata_version = metadata_version
        """That of the gate's own questions."""
        self.topics = KnownTopics()
        self.doors: dict[int, Door] = {}
        self._nursery = nursery
        self._on_door = on_door
        self._opening = trio.Lock()

    async def door_to(self, node: int, address: tuple[str, int], port: int = 0) -> Door:
        """The door of a broker, which is at this address now. ``FatalError`` if its port cannot be had."""
        async with self._opening:
            door = self.doors.get(node)
            if door is None:
                try:
                    listeners = await trio.open_tcp_listeners(port, host=HOST)
                except OSError as error:
                    raise cannot_listen(HOST, port, error) from None
                self.doors[node] = door = Door(self, node, listeners[0].socket.getsockname()[1])
                self._on_door(door)
                serve = partial(trio.serve_listeners, handler_nursery=self._nursery)
                self._nursery.start_soon(serve, door.serve, listeners)
        door.address = address
        return door

    async def put_doors(self, response: Message) -> bool:
        """Have an answer name doors instead of brokers; whether it named any."""
        found = [each for each in brokers_named(response) if each.host]
        for each in found:
            node = each.node_id if hasattr(each, "node_id") else each.broker_id
            each.host, each.port = HOST, (await self.door_to(node, (each.host, each.port))).port
        return bool(found)


class Door:
    """A port of this machine that stands for a broker; to an :class:`Interceptor`, a node and its listener."""

    is_controller = False

    def __init__(self, gate: Gate, node: int, port: int) -> None:
        self.gate = gate
        self.node = node
        self.port = port
        self.address = "", 0
        """Where the broker is."""
        self.listeners = (self,)
        self.on_opening: list[Callable[[], object]] = []
        self.sessions = PassedSessions()
        self.handlers: dict[int, Registration] = {}
        """The APIs that something is to be done for."""
        clock = SimpleNamespace(wall_clock_ms=lambda: time.time_ns() // 1_000_000)
        known = {
            "node_id": node,
            "env": clock,
            "replica_manager": gate.topics,
            "metadata": SimpleNamespace(image=SimpleNamespace(topics=gate.topics)),
            "fetch_sessions": self.sessions,
        }
        self.services = cast("Services", SimpleNamespace(**known))
        """The part of a node's services that faults know."""
        self.interceptor = Interceptor(self)
        self._is_down = False

    def registration(self, api_key: int) -> Registration | None:
        """By what an API is passed on; None for one that passes unread."""
        versions = offered(API_KEYS[api_key])
        if api_key in SASL:
            return None
        return Registration(api_key, versions, versions, BROKER, Forwarding.NONE, True, object, _pass_on)

    def replace_handler(self, registration: Registration) -> None:
        """Handle an API otherwise, from each connection's next request on."""
        self.handlers[registration.api_key] = registration
        if registration.handle is _pass_on:
            del self.handlers[registration.api_key]

    async def serve(self, client: trio.SocketStream) -> None:
        """Pass a client's connection on until one side ends it."""
        host, port = self.address
        async with client:
            try:
                with trio.fail_after(CONNECT_SECONDS):
                    broker = await trio.open_tcp_stream(host, port)
            except (OSError, trio.TooSlowError) as error:
                if not self._is_down:
                    why = str(error) or "no answer"
                    logger.warning("clients of broker %d are disconnected: %s:%d: %s", self.node, host, port, why)
                self._is_down = True
                return
            if self._is_down:
                logger.warning("broker %d is at %s:%d again", self.node, host, port)
            self._is_down = False
            async with broker:
                try:
                    await Passage(self, client, broker).run()
                except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                    pass  # one of them is gone
                except* (CloseConnection, WireError, FatalError) as errors:
                    logger.info("a connection to broker %d is closed: %s", self.node, errors.exceptions[0])
                except* Exception:  # a mistake, and no reason to end all others
                    logger.exception("a connection to broker %d failed", self.node)


async def _pass_on(request: Any, ctx: RequestContext) -> Any:
    return await cast("Passage", ctx.connection).ask(request, ctx.header)


class _Pending(NamedTuple):
    """A request that the broker has not answered."""

    header: RequestHeader
    request: Any
    """None where nobody needs it."""
    answer: trio.MemorySendChannel[Any] | None
    """Where the answer goes; None: to the client."""


class Passage:
    """A client's connection, and the one to the broker that it is passed on by; to faults, a connection of a node."""

    is_controller = False
    principal = ""
    """Unknown: whoever logs in does so at the broker."""

    def __init__(self, door: Door, client: trio.SocketStream, broker: trio.SocketStream) -> None:
        self._door = door
        self._client = client
        self._broker = broker
        self._pending: deque[_Pending] = deque()
        self._idle = trio.Event()
        self._served: tuple[Any, Buffer] = None, b""
        """The request that is being handled, and its frame."""
        self.peer = "{}:{}".format(*client.socket.getpeername())
        self.client_software_name = self.client_software_version = ""

    async def run(self) -> None:
        """Pass on what comes from both sides until one ends."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._take_answers, nursery.cancel_scope)
            async for frame in _frames(self._client, FrameReader()):
                await self._take(frame)
            await self._broker.send_eof()  # it answers what it has, and ends the connection

    async def _take(self, frame: memoryview) -> None:
        """Pass a request on, or have it handled."""
        header, offset = decode_request_header(frame)
        key, version, *_ = header
        if version not in offered(API_KEYS[key]):
            if key != API_VERSIONS_KEY:
                raise CloseConnection(f"{API_KEYS[key].name} v{version} of {self.peer} is not among what is offered")
            await self._send(header, unsupported_version())
            return
        handler = self._door.handlers.get(key)
        if handler is None and key not in (API_VERSIONS_KEY, FETCH_KEY, _PRODUCE_KEY):
            await self._pass(frame, _Pending(header, None, None))
            return
        request, _ = decode(API_KEYS[key].request, version, frame, offset)
        if key == API_VERSIONS_KEY:
            self.client_software_name = request.client_software_name
            self.client_software_version = request.client_software_version
        if handler is None:
            await self._pass(frame, _Pending(header, request, None))
            return
        await self._learn_topics(API_KEYS[key], version, request)
        self._served = request, frame
        ctx = RequestContext(header, cast("Connection", self), self._door.services)
        response = await handler.handle(request, ctx)
        if response is not None:
            await self._send(header, response)

    async def _learn_topics(self, api: ApiDescription, version: int, request: Any) -> None:
        """Ask for the names of the topics that a request means: a node would know them."""
        unknown = topic_ids_of(request)
        if api.key == FETCH_KEY:
            read = self._door.sessions.partitions_of(request.session_id, request.session_epoch)
            unknown |= {uuid_to_str(key.topic_id) for key in read if not key.topic}
        unknown -= self._door.gate.topics.known.keys()
        is_about_all = is_about_all_topics(api, request, version)
        if unknown or is_about_all:
            topics = None if is_about_all else [MetadataRequestTopic(topic_id=uuid_from_str(each)) for each in unknown]
            asked = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            for each in asked.topics or ():
                each.name = None
            metadata_version = self._door.gate.metadata_version
            told = await self.ask(asked, RequestHeader(asked.api_key, metadata_version, 0, OWN_CLIENT_ID))
            if is_about_all:
                self._door.gate.topics.by_name = {topic.name: topic.topic_id for topic in told.topics}

    async def ask(self, request: Any, header: RequestHeader) -> Any:
        """The broker's answer to a request, in which doors are named; None if it gives none."""
        served, frame = self._served
        if request is not served:
            parts = request_parts(header.api_key, header.api_version, *header[2:], request)
            frame = memoryview(b"".join(parts))[4:]
        answer, answered = trio.open_memory_channel[Any](1)
        if await self._pass(frame, _Pending(header, request, answer)):
            return await answered.receive()
        return None

    async def _pass(self, frame: Buffer, pending: _Pending) -> bool:
        """Send a request to the broker; whether it will be answered."""
        is_answered = pending.header.api_key != _PRODUCE_KEY or pending.request.acks != NO_ACKS
        if is_answered:
            self._pending.append(pending)
        await self._broker.send_all(len(frame).to_bytes(4, "big") + frame)
        return is_answered

    async def _take_answers(self, scope: trio.CancelScope) -> None:
        """Pass the broker's answers on until it ends the connection."""
        async for frame in _frames(self._broker, FrameReader(RESPONSE_LIMIT, api_keys=None)):
            if not self._pending:
                raise WireError(f"broker {self._door.node} answers what nobody has asked")
            header, request, answer = self._pending[0]
            response, is_changed = await self._understood(frame, header, request, answer is not None)
            if answer is not None:
                answer.send_nowait(response)
            elif is_changed:
                await self._write(header, response)
            else:
                await self._client.send_all(len(frame).to_bytes(4, "big") + frame)
            self._pending.popleft()
            if not self._pending:
                self._idle.set()
        scope.cancel()

    async def _understood(
        self, frame: memoryview, header: RequestHeader, request: Any, is_wanted: bool
    ) -> tuple[Any, bool]:
        """An answer (None where it is of no interest), and whether it is another one than the broker's."""
        key, gate, api = header.api_key, self._door.gate, API_KEYS[header.api_key]
        correlation_id, offset = decode_response_header(key, header.api_version, frame)
        if correlation_id != header.correlation_id:
            raise WireError(f"broker {self._door.node} answers {correlation_id} where {header.correlation_id} was due")
        if not (is_wanted or key == API_VERSIONS_KEY or names_a_broker(api.response) or ways_to_brokers(api.response)):
            return None, False
        version = response_version(key, header.api_version, frame, offset)
        response, _ = decode(api.response, version, frame, offset)
        is_changed = await gate.put_doors(response)
        if key == _METADATA_KEY:
            gate.topics.learn(response)
        elif key == FETCH_KEY:
            self._door.sessions.answered(request, response)
        elif key == API_VERSIONS_KEY and not response.error_code:
            response.api_keys = [each for each in response.api_keys if _is_known(each)]
            is_changed = True
        return response, is_changed

    async def _send(self, header: RequestHeader, response: Any) -> None:
        """Give the client an answer, after those to earlier requests."""
        await self.flush()
        await self._write(header, response)

    async def _write(self, header: RequestHeader, response: Any) -> None:
        key, version, correlation_id, _ = header
        if key == API_VERSIONS_KEY and response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            version = 0  # see `response_version`
        parts = response_parts(key, version, correlation_id, response)
        await self._client.send_all(b"".join(cast("list[Buffer]", parts)))

    async def flush(self) -> None:
        """Return once the client has all answers to earlier requests."""
        while self._pending:
            self._idle = trio.Event()
            await self._idle.wait()


def _is_known(entry: Any) -> bool:
    """Whether an API that a broker serves can pass, in the versions that are left in its entry."""
    api = API_KEYS.get(entry.api_key)
    if api is None:
        return False
    lowest, highest = offered(api)
    entry.min_version, entry.max_version = max(entry.min_version, lowest), min(entry.max_version, highest)
    return bool(entry.min_version <= entry.max_version)


async def _frames(stream: trio.SocketStream, reader: FrameReader) -> AsyncIterator[memoryview]:
    """Yield the frames that come until the other side ends the connection."""
    while True:
        while (frame := reader.next_frame()) is not None:
            yield frame
        count = await stream.socket.recv_into(reader.get_buffer())
        if not count:
            return
        reader.buffer_updated(count)
