"""What a handler is given besides its request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.env import Env
    from kbroker.log.manager import LogManager
    from kbroker.replication.fetch_session import FetchSessionCache

T = TypeVar("T")
Defer = Callable[[Callable[[], None]], None]


class CloseConnection(Exception):
    """The handler wants this connection closed without an answer; the text goes to the log."""


class DelayedResponse:
    """A response whose value comes later, while the connection reads on.

    The connection keeps its place in the order of replies. ``complete`` is called once, by whoever sees the
    condition met or the time run out; later calls do nothing. ``begin`` is called with this response once it has its
    place: a reply that it gives goes out at once, and before the rest of what ``begin`` does.
    """

    __slots__ = ("_begin", "_callback", "done", "response")

    def __init__(self, begin: Callable[[DelayedResponse], None] | None = None) -> None:
        self.done = False
        self.response: Any = None
        self._begin = begin
        self._callback: Callable[[], None] | None = None

    def complete(self, response: Any) -> None:
        """Give the value; the connection writes it as soon as all earlier replies are out."""
        if self.done:
            return
        self.done = True
        self.response = response
        if self._callback is not None:
            self._callback()

    def on_complete(self, callback: Callable[[], None]) -> None:
        """Have ``callback()`` called when the value is there (at once if it already is)."""
        self._callback = callback
        if self.done:
            callback()
            return
        begin, self._begin = self._begin, None
        if begin is not None:
            begin(self)


class RepeatedRequest(Protocol):
    """Serves requests of a connection that repeat an earlier one, all but a part that it knows."""

    collects: ClassVar[bool]
    """Whether it goes on to serve what it did when another request has been learned from."""

    def answer(self, frame: memoryview, defer: Defer | None = None) -> bytes | DelayedResponse | None:
        """Serve the request in ``frame``, of an API that this is for; the whole response frame, or what will have it.

        ``defer`` is there where many requests have come at once: what it is given is done when all have been served,
        before their answers go out, which may be taken back until then (``ConnectionInfo.take_back``).
        ``None``: it is no repetition, or not one for the short way, and nothing has been done.
        """
        ...


class MetadataDriver(Protocol):
    """The part of ``node.raft_driver`` that handlers use."""

    @property
    def image(self) -> Any:
        """The latest published ``MetadataImage``."""
        ...

    def finalized_features(self) -> tuple[Mapping[str, int], int]:
        """Finalized feature levels, and the epoch that ApiVersions gives them."""
        ...

    @property
    def schema(self) -> Any:
        """The node's ``ConfigSchema``: which configs there are, and where effective values come from."""
        ...

    def describe_quorum(self) -> Any:
        """The ``QuorumDescription``: who leads the metadata quorum, who votes, how far they are."""
        ...

    @property
    def is_alone(self) -> bool:
        """Whether this node is the whole metadata quorum."""
        ...

    @property
    def is_leader(self) -> bool:
        """Whether this node is the active controller."""
        ...

    def check_registration(self, registration: Any) -> None:
        """``ApiError`` DUPLICATE_BROKER_REGISTRATION if another node has the id and lives."""
        ...

    async def heartbeat(self, beat: Any, connection: ConnectionInfo) -> Any:
        """A broker shows on a connection that it lives: the ``HeartbeatState`` that it is to hear."""
        ...

    async def ask_quorum(self, request: Any) -> Any:
        """Another replica's request to the Raft core, in the values of ``raft_metadata.raft_messages``."""
        ...

    async def create_topics(self, topics: Any) -> Mapping[str, Any]:
        """Create topics on the node's own account; by name an ``ApiError``, or something else if it went well."""
        ...

    async def forward(self, request: Any, version: int) -> Any:
        """Have the active controller answer a client's request; None if it cannot be had."""
        ...

    async def submit(self, operation: Callable[[Any, int], Any]) -> Any:
        """Run ``operation(controller, now_ms) -> ControllerResult`` on the active controller.

        Returns its response once the records are committed and the image that holds them is published.
        """
        ...


class ConnectionInfo(Protocol):
    """What a handler may know of the connection that the request came on."""

    listener_name: str
    is_controller: bool
    peer: str
    closed: bool
    when_closed: Callable[[], None] | None
    client_software_name: str
    client_software_version: str
    repeated: dict[int, RepeatedRequest]

    @property
    def is_asked_more(self) -> bool:
        """Whether a request of another API waits behind the Fetch that is being served."""
        ...

    def take_back(self, reply: bytes, response: Any, version: int) -> None:
        """Answer ``response`` instead of ``reply``: what a ``RepeatedRequest`` has answered in this turn of a crowd."""
        ...

    async def wait_for(self, operation: Any, timeout: float, *, gives_way: bool = False) -> None:
        """Wait until ``operation.done``, the time (seconds) is out, or the client is gone (raises).

        One that ``gives_way`` is waited for no longer when the client asks for something else meanwhile.
        """
        ...


@dataclass(slots=True)
class Services:
    """The node's parts, as handlers see them: one object for the life of the node."""

    env: Env
    config: BrokerConfig
    node_id: int
    cluster_id: str
    metadata: MetadataDriver
    replica_manager: Any
    log_manager: LogManager
    fetch_sessions: FetchSessionCache
    producer_ids: Any
    groups: Any = None
    """The group coordinator's driver (``node.group_driver``)."""
    transactions: Any = None
    """The transaction coordinator's driver (``node.transaction_driver``)."""
    markers: Any = None
    """Writes transaction markers into partitions (``node.transaction_markers``)."""
    look_ups: Any = None
    """Takes reads that may be long in turns with everything else (``node.look_ups``)."""
    long_produces: Any = None
    """Takes Produce requests that may be long in turns with everything else (``node.long_produces``)."""
    extra: dict[str, Any] = field(default_factory=dict)


class RequestContext:
    """One request's header, connection, and the node's services."""

    __slots__ = ("connection", "header", "services")

    def __init__(self, header: Any, connection: Any, services: Services) -> None:
        self.header = header
        self.connection = connection
        self.services = services

    @property
    def api_version(self) -> int:
        """The version of the request, which the response is encoded in too."""
        return int(self.header.api_version)
