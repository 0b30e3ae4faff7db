"""The second argument of every handler: the request's header and connection, and the node's services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.env import Env
    from kbroker.handlers.services import (
        Connection,
        FetchReader,
        Groups,
        LongSteps,
        Markers,
        Metadata,
        Partitions,
        ProduceQueue,
        ProducerIds,
        TimestampLookupQueue,
        Transactions,
    )
    from kbroker.log.manager import LogManager
    from kbroker.replication.fetch_session import FetchSessionCache
    from kbroker.round import Round
    from kbroker.security.authorizer.types import Authorizer
    from kbroker.security.principal import KafkaPrincipal
    from kbroker.wire.headers import RequestHeader


class CloseConnection(Exception):
    """The handler wants this connection closed without an answer; the text goes to the log."""


@dataclass(slots=True)
class Services:
    """The node's parts, as handlers see them: one object for the life of the node."""

    env: Env
    config: BrokerConfig
    node_id: int
    cluster_id: str
    metadata: Metadata
    replica_manager: Partitions
    log_manager: LogManager
    fetch_sessions: FetchSessionCache
    fetch_reader: Callable[[], FetchReader]
    """Made with the first Fetch, and the same ever after."""
    producer_ids: ProducerIds
    timestamp_lookups: TimestampLookupQueue
    produce_queue: ProduceQueue
    long_steps: LongSteps
    groups: Groups
    """These three are for the APIs of brokers: a node without that role has none."""
    transactions: Transactions
    markers: Markers
    check_listeners: Callable[[Mapping[str, str | None]], Awaitable[None]] | None = None
    """Judges changes of this node's ``listener.name.`` properties, None for one that is removed; ``ApiError``. None if
    no listener has anything that changes."""
    authorizer: Authorizer | None = None
    """Handlers ask it through ``handlers.authorization``."""
    refusals: dict[tuple[str, str, int], float] = field(default_factory=dict)
    """The times of the last warnings that another node was refused (``handlers.refusals``)."""


class RequestContext:
    """One request's header, connection, and the node's services.

    ``round`` is the crowded round of the poller that the request is served in, ``None`` if there is none: small batches
    are then gathered, and written at its end. It holds until the handler waits for the first time.
    """

    __slots__ = ("connection", "header", "round", "services")

    def __init__(
        self, header: RequestHeader, connection: Connection, services: Services, round: Round | None = None
    ) -> None:
        self.header = header
        self.connection = connection
        self.services = services
        self.round = round

    @property
    def principal(self) -> KafkaPrincipal:
        """Who asks."""
        return self.connection.principal

    @property
    def host(self) -> str:
        """The client's address, without its port."""
        return self.connection.peer.rpartition(":")[0]

    @property
    def api_version(self) -> int:
        """The version of the request, which the response is encoded in too."""
        return self.header.api_version
