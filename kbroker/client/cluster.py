"""A cluster as a client sees it: which brokers there are, who leads what, where a request goes, and trying again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar

from kbroker.client.connection import Connection
from kbroker.client.errors import (
    COORDINATOR_MOVED,
    STALE_METADATA,
    ClientError,
    ConnectionFailed,
    NoSuchBroker,
    RequestTimedOut,
    ResponseError,
)
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kbroker.wire.schema import Request

if TYPE_CHECKING:
    from kbroker.client.security import ClientSecurity

T = TypeVar("T")
R = TypeVar("R")

DEFAULT_PORT: Final = 9092
DEFAULT_TIMEOUT: Final = 30.0

FIRST_BACKOFF: Final = 0.05
_LONGEST_BACKOFF: Final = 1.0
_LEAST_TRY: Final = 1.0
"""Seconds that a broker gets at least, if there are as many, although others are to be tried: it may be slow."""


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A broker as Metadata lists it."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(slots=True)
class _Known:
    """The cluster as the last Metadata responses described it."""

    brokers: dict[int, BrokerNode] = field(default_factory=dict)
    controller_id: int = -1
    cluster_id: str | None = None
    leaders: dict[TopicPartition, int] = field(default_factory=dict)


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """``host:port,[::1]:port,host`` as addresses; ``ValueError`` says which entry is wrong."""
    addresses: list[tuple[str, int]] = []
    for entry in (part.strip() for part in text.split(",")):
        if not entry:
            continue
        if entry.startswith("["):
            host, bracket, rest = entry[1:].partition("]")
            port = rest[1:] if rest.startswith(":") else rest
            if not bracket or (rest and not rest.startswith(":")):
                raise ValueError(f"{entry!r} is not of the form host:port")
        else:
            host, _, port = entry.partition(":")
        if not port:
            port = str(DEFAULT_PORT)
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise ValueError(f"{entry!r} is not of the form host:port")
        addresses.append((host, int(port)))
    if not addresses:
        raise ValueError("no address of a broker is given")
    return addresses


class Client:
    """Connections to the brokers of one cluster; a context manager.

    ``security``: how its connections enter secure listeners, None for plain ones
    (:func:`kbroker.client.security.security_of`).
    ``timeout``: seconds that one operation may take, retries included. The first connection is tried once to each
    bootstrap address: who cannot be reached then is a mistake in the address rather than a broker that restarts.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[tuple[str, int]],
        *,
        client_id: str = "kbroker",
        timeout: float = DEFAULT_TIMEOUT,
        security: ClientSecurity | None = None,
    ) -> None:
        self.bootstrap = parse_bootstrap(bootstrap) if isinstance(bootstrap, str) else list(bootstrap)
        self.client_id = client_id
        self.timeout = timeout
        self._security = security
        self._known = _Known()
        self._connections: dict[int, Connection] = {}
        self._entrance: Connection | None = None
        self._silent: set[tuple[str, int]] = set()
        """Addresses at which somebody did not answer, in time or at all: others are tried first."""
        self._coordinators: dict[tuple[int, str], int] = {}

    def another(self) -> Client:
        """A client of the same cluster with connections of its own: on one, answers come in the order of requests."""
        return Client(self.bootstrap, client_id=self.client_id, timeout=self.timeout, security=self._security)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in (*self._connections.values(), *([self._entrance] if self._entrance else [])):
            connection.close()
        self._connections.clear()
        self._entrance = None

    def deadline(self) -> float:
        """When an operation that begins now must have ended, on ``time.monotonic``'s clock."""
        return time.monotonic() + self.timeout

    # --- Connections ------------------------------------------------------------------------------------------------

    def any_broker(self, deadline: float) -> Connection:
        """A connection to some broker: one that is open, else a bootstrap address, else one that is known."""
        if self._entrance is not None and not self._entrance.closed:
            return self._entrance
        for connection in self._connections.values():
            if not connection.closed:
                return connection
        known = [(broker.host, broker.port) for broker in self._known.brokers.values()]
        problems: list[ClientError] = []
        addresses = sorted(dict.fromkeys([*self.bootstrap, *known]), key=lambda address: address in self._silent)
        for index, (host, port) in enumerate(addresses):
            try:
                self._entrance = self._connect(host, port, _part(deadline, len(addresses) - index))
                return self._entrance
            except (ConnectionFailed, RequestTimedOut) as error:
                self._silent.add((host, port))
                problems.append(error)
        raise problems[0]

    def node(self, node_id: int, deadline: float) -> Connection:
        """The connection to one broker, made anew if need be."""
        connection = self._connections.get(node_id)
        if connection is not None and not connection.closed:
            return connection
        if node_id not in self._known.brokers:
            self.refresh((), deadline)
        broker = self._known.brokers.get(node_id)
        if broker is None:
            raise NoSuchBroker(f"there is no broker {node_id} in the cluster")
        try:
            connection = self._connect(broker.host, broker.port, self.one_try(deadline))
        except ConnectionFailed as error:
            raise ConnectionFailed(f"broker {node_id} says that it is at {broker}, but: {error}") from None
        self._connections[node_id] = connection
        return connection

    def one_try(self, deadline: float) -> float:
        """The end of a try that leaves time for another broker, if there is one."""
        return _part(deadline, 2 if len(self._known.brokers) > 1 else 1)

    def _connect(self, host: str, port: int, deadline: float) -> Connection:
        return Connection(host, port, client_id=self.client_id, deadline=deadline, security=self._security)

    # --- Metadata ---------------------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str | None:
        return self._known.cluster_id

    @property
    def controller_id(self) -> int:
        """The broker that Metadata names as controller, -1 if none."""
        return self._known.controller_id

    @property
    def brokers(self) -> Mapping[int, BrokerNode]:
        """The brokers that the last Metadata listed."""
        return self._known.brokers

    def refresh(
        self, topics: Iterable[str] | None, deadline: float | None = None, *, allow_auto_topic_creation: bool = False
    ) -> list[MetadataResponseTopic]:
        """Ask for the metadata of some topics (``None``: all), remember it, and return the topics.

        A topic's error is in its ``error_code``.
        """
        names = None if topics is None else sorted(set(topics))
        deadline = self.deadline() if deadline is None else deadline
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=allow_auto_topic_creation,
        )

        def ask() -> MetadataResponse:
            # Version 13 may answer REBOOTSTRAP_REQUIRED (KIP-1102), which 12 cannot.
            connection = self.any_broker(deadline)
            try:
                until = self.one_try(deadline)
                return connection.request(request, until, version=connection.version_for(MetadataRequest, 12))
            except RequestTimedOut:
                self._silent.add((connection.host, connection.port))
                raise

        response = self.retrying(ask, deadline)
        known = self._known
        known.brokers = {
            broker.node_id: BrokerNode(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        known.controller_id = response.controller_id
        known.cluster_id = response.cluster_id
        for topic in response.topics:
            for partition in topic.partitions:
                if topic.name is not None:
                    known.leaders[TopicPartition(topic.name, partition.partition_index)] = partition.leader_id
        return response.topics

    def partitions_of(self, topic: str, *, allow_auto_topic_creation: bool = False) -> list[int]:
        """The numbers of a topic's partitions; ``ResponseError`` if there is no such topic."""
        deadline = self.deadline()

        def ask() -> list[int]:
            [found] = self.refresh([topic], deadline, allow_auto_topic_creation=allow_auto_topic_creation)
            if found.error_code:
                error = ResponseError(found.error_code, f"topic {topic}")
                if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not allow_auto_topic_creation:
                    raise _Final(error)
                raise error
            return sorted(partition.partition_index for partition in found.partitions)

        return self.retrying(ask, deadline)

    # --- Trying again -----------------------------------------------------------------------------------------------

    def retrying(self, attempt: Callable[[], T], deadline: float) -> T:
        """Call ``attempt`` until it does not fail with an error that may pass, or the deadline comes."""
        pause = FIRST_BACKOFF
        while True:
            try:
                return attempt()
            except _Final as final:
                raise final.error from None
            except (ConnectionFailed, RequestTimedOut, ResponseError) as error:
                if isinstance(error, ResponseError) and not error.retriable:
                    raise
                if isinstance(error, ConnectionFailed) and not self._known.brokers:
                    raise
                if time.monotonic() + pause >= deadline:
                    raise
            pause = self.back_off(pause)

    def back_off(self, pause: float = FIRST_BACKOFF) -> float:
        """Sleep about ``pause`` seconds; returns how long to sleep the next time."""
        time.sleep(pause * random.uniform(0.8, 1.2))
        return min(2 * pause, _LONGEST_BACKOFF)

    # --- Routing ----------------------------------------------------------------------------------------------------

    def ask_any(self, request: Request[R], *, highest: int | None = None) -> R:
        """Send to any broker and return the response, whatever error codes it holds."""
        deadline = self.deadline()

        def ask() -> R:
            connection = self.any_broker(deadline)
            version = connection.version_for(type(request), highest)
            return connection.request(request, deadline, version=version)

        return self.retrying(ask, deadline)

    def ask_node(self, node_id: int, request: Request[R], *, highest: int | None = None) -> R:
        """Send to one broker."""
        return self.ask_nodes({node_id: request}, highest=highest)[node_id]

    def ask_nodes(self, requests: Mapping[int, Request[R]], *, highest: int | None = None) -> dict[int, R]:
        """Send a request to each of several brokers at once; broker -> response. Any failure is an error."""
        deadline = self.deadline()

        def ask() -> dict[int, R]:
            return self.ask_together(requests, deadline, highest)

        return self.retrying(ask, deadline)

    def ask_together(
        self, requests: Mapping[int, Request[R]], deadline: float, highest: int | None = None
    ) -> dict[int, R]:
        """The same by a deadline, tried once."""
        asked: list[tuple[int, Connection]] = []
        answers: dict[int, R] = {}
        for node_id, request in sorted(requests.items()):
            connection = self.node(node_id, deadline)
            version = connection.version_for(type(request), highest)
            if connection.in_flight:  # somebody else's; the order of answers is that of requests
                answers[node_id] = connection.request(request, deadline, version=version)
                continue
            connection.send(request, version=version)
            asked.append((node_id, connection))
        return answers | {node_id: connection.receive(deadline) for node_id, connection in asked}

    def all_nodes(self, deadline: float | None = None) -> list[int]:
        """The ids of all brokers, asked for anew."""
        self.refresh((), deadline)
        return sorted(self._known.brokers)

    def ask_controller(self, request: Request[R], check: Callable[[R], None], *, highest: int | None = None) -> R:
        """Send to the broker that Metadata calls the controller (in KRaft any broker: it forwards).

        ``check`` raises ``ResponseError`` for what should be tried again, or not.
        """
        deadline = self.deadline()

        def ask() -> R:
            if self.controller_id not in self.brokers:
                self.refresh((), deadline)
            try:
                if self.controller_id in self.brokers:
                    connection = self.node(self.controller_id, deadline)
                else:
                    connection = self.any_broker(deadline)
                version = connection.version_for(type(request), highest)
                response = connection.request(request, deadline, version=version)
                check(response)
            except (ConnectionFailed, RequestTimedOut, ResponseError) as error:
                if not isinstance(error, ResponseError) or error.code == ErrorCode.NOT_CONTROLLER:
                    self._known.controller_id = -1
                elif error.code in STALE_METADATA:
                    raise _Final(error) from None
                raise
            return response

        return self.retrying(ask, deadline)

    # --- Coordinators -----------------------------------------------------------------------------------------------

    def coordinator(self, group_id: str, deadline: float | None = None, *, key_type: int = 0) -> int:
        """The id of the broker that coordinates a group (``key_type`` 0) or a transactional id (1)."""
        deadline = self.deadline() if deadline is None else deadline
        known = self._coordinators.get((key_type, group_id))
        if known is not None:
            return known

        def ask() -> int:
            connection = self.any_broker(deadline)
            version = connection.version_for(FindCoordinatorRequest)
            batched = version >= 4
            response = connection.request(
                FindCoordinatorRequest(
                    key="" if batched else group_id, key_type=key_type, coordinator_keys=[group_id] if batched else []
                ),
                deadline,
                version=version,
            )
            found = response.coordinators[0] if batched else response
            if found.error_code:
                kind = "transactional id" if key_type else "group"
                raise ResponseError(found.error_code, f"{kind} {group_id}", found.error_message)
            if found.node_id not in self.brokers:
                self.refresh((), deadline)
            return found.node_id

        node_id = self.retrying(ask, deadline)
        self._coordinators[key_type, group_id] = node_id
        return node_id

    def ask_coordinator(
        self,
        group_id: str,
        request: Request[R],
        check: Callable[[R], None],
        *,
        highest: int | None = None,
        key_type: int = 0,
    ) -> R:
        """Send to the coordinator of a group (``key_type`` 0) or of a transactional id (1).

        ``check`` raises ``ResponseError`` for an error of the whole response.
        """
        return self.ask_coordinator_versioned(
            group_id, lambda version: request, type(request), check, highest=highest, key_type=key_type
        )

    def ask_coordinator_versioned(
        self,
        group_id: str,
        make: Callable[[int], Request[R]],
        request_class: type[Request[R]],
        check: Callable[[R], None],
        *,
        highest: int | None = None,
        key_type: int = 0,
    ) -> R:
        """The same with a request that depends on its version."""
        deadline = self.deadline()

        def ask() -> R:
            try:
                connection = self.node(self.coordinator(group_id, deadline, key_type=key_type), deadline)
                version = connection.version_for(request_class, highest)
                response = connection.request(make(version), deadline, version=version)
                check(response)
            except NoSuchBroker as error:  # the coordinator was one, and another is elected
                self._coordinators.pop((key_type, group_id), None)
                raise ConnectionFailed(str(error)) from None
            except (ConnectionFailed, RequestTimedOut, ResponseError) as error:
                if not isinstance(error, ResponseError) or error.code in COORDINATOR_MOVED:
                    self._coordinators.pop((key_type, group_id), None)
                elif error.code in STALE_METADATA:
                    raise _Final(error) from None
                raise
            return response

        return self.retrying(ask, deadline)

    # --- Leaders ----------------------------------------------------------------------------------------------------

    def leader(self, partition: TopicPartition) -> int | None:
        """The leader by what is known, None without one."""
        leader = self._known.leaders.get(partition, -1)
        return leader if leader in self._known.brokers else None

    def forget_leader(self, partition: TopicPartition) -> None:
        """Forget a partition's leader, which has turned out to be another."""
        self._known.leaders.pop(partition, None)


def _part(deadline: float, parts: int) -> float:
    """The end of one of so many equal parts of the time that is left: who hangs does not take that of the others."""
    now = time.monotonic()
    return min(deadline, now + max((deadline - now) / parts, _LEAST_TRY))


class _Final(Exception):
    """An error that is not to be tried again, although its code sounds like it."""

    def __init__(self, error: ResponseError) -> None:
        super().__init__(str(error))
        self.error = error


def refuse(code: int, what: str, message: str | None = None) -> None:
    """``ResponseError`` for an error code that is not 0."""
    if code:
        raise ResponseError(code, what, message)
