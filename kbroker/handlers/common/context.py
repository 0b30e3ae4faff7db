"""The second argument of every handler: the request's header and connection, and the node's services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kbroker.value_types import dataclass, field

if TYPE_CHECKING:
    import trio

    from kbroker.config import BrokerConfig
    from kbroker.cores.replication.fetch_session import FetchSessionCache
    from kbroker.cores.replication.replica_selector import ReplicaSelector
    from kbroker.errors import ApiError
    from kbroker.handlers.services.acls import KeptAcls
    from kbroker.handlers.services.connection import Connection
    from kbroker.handlers.services.coordinators import Groups, Markers, ProducerIds, Transactions
    from kbroker.handlers.services.explorer import LoginTap
    from kbroker.handlers.services.metadata import Metadata
    from kbroker.handlers.services.partitions import FetchReader, Partitions, Scrubber
    from kbroker.handlers.services.quotas import NodeQuotas, RequestMeter
    from kbroker.handlers.services.share_groups import ShareGroups
    from kbroker.handlers.services.telemetry import Telemetry
    from kbroker.handlers.services.turns import WorkQueue
    from kbroker.log.manager import LogManager
    from kbroker.runtime.budgets import Budgets
    from kbroker.runtime.env import Env
    from kbroker.runtime.later import Later
    from kbroker.runtime.round import Round
    from kbroker.runtime.turns import StepTurns
    from kbroker.security.authorizer.types import Authorizer
    from kbroker.security.delegation_tokens import DelegationTokens
    from kbroker.security.principal import KafkaPrincipal
    from kbroker.wire.headers import RequestHeader
    from kbroker.wire.messages.produce import ProduceRequest, ProduceResponse

    WriteProduce = Callable[
        [ProduceRequest, "RequestContext", Callable[[str], bool] | None, ApiError | None],
        ProduceResponse | Later[ProduceResponse | None] | None,
    ]


class CloseConnection(Exception):
    """The handler wants this connection closed without an answer; the text goes to the log."""


NO_BROKER: Final[Any] = None
"""Stands for a part that only the APIs of brokers ask for, on a node without that role."""


@dataclass(slots=True, frozen=True)
class Services:
    """The node's parts, as handlers see them. Made last of all, once for the life of the node, and never changed."""

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
    timestamp_lookups: WorkQueue
    produce_writer: Callable[[], WriteProduce]
    """Gives what writes the batches of Produce requests (``node.replicas.produce_writer``), as the first needs it."""
    produce_queue: WorkQueue
    long_steps: StepTurns
    """The steps of requests of very many parts that clients make to the controller: one takes up to a second."""
    large_answers: trio.Lock
    """Held by the request whose large answer is made (``node.serving.long_request``)."""
    quotas: NodeQuotas
    groups: Groups = NO_BROKER
    transactions: Transactions = NO_BROKER
    markers: Markers = NO_BROKER
    share_groups: Callable[[], ShareGroups] | None = None
    """Makes the parts of share groups when it is first called; None on a node without the broker role."""
    check_own_configs: Callable[[Mapping[str, tuple[int, str]]], Awaitable[None]] | None = None
    """Judges changes of this node's properties that no other node can judge: operation and value; ``ApiError``."""
    authorizer: Authorizer | None = None
    """Handlers ask it through ``handlers.common.authorization``."""
    authorizer_of: Callable[[RequestContext], Authorizer] | None = None
    """The authorizer for one request, where it is to know more of it than the principal and its address."""
    kept_acls: KeptAcls | None = None
    """The ACLs that the authorizer keeps by itself; None where they are in the metadata."""
    tokens: DelegationTokens | None = None
    """The key of delegation tokens; None if the node has none."""
    replica_selector: Callable[[RequestContext, str], tuple[ReplicaSelector, Hashable]] | None = None
    """Gives the selector of a replica for a consumer's request, by its rack, and a value that stays the same as long as
    its answers hold; None where no rule selects."""
    telemetry: Telemetry | None = None
    """None where `metric.reporters` has no receiver of clients' metrics."""
    scrubber: Callable[[], Scrubber | None] = lambda: None
    """None on a node that does not scrub, or has started a moment ago."""
    tap: LoginTap | None = None
    """Sees logins for the protocol explorer; None on a node that is not to be watched."""
    refusals: dict[tuple[str, str, int], float] = field(default_factory=dict)
    """The times of the last warnings that another node was refused (``handlers.common.refusals``)."""
    unmade_topics: set[str] = field(default_factory=set)
    """Internal topics of which it was told that their replication factor cannot be had."""


class RequestContext:
    """One request's header, connection, and the node's services.

    ``round`` is the crowded round of the poller that the request is served in, ``None`` if there is none: small batches
    are then gathered, and written at its end. It holds until the handler waits for the first time.
    """

    __slots__ = ("connection", "denials", "header", "prefetched_permissions", "round", "services")

    prefetched_permissions: dict[str, bool]
    """By name: the principal's rights, as ``authorization.may_each`` has asked for them; not set if it has not."""

    denials: int
    """The number of denials of this request that the audit log has; not set before the first."""

    is_own: ClassVar[bool] = False
    """The node asks on its own account."""

    def __init__(
        self, header: RequestHeader, connection: Connection, services: Services, round: Round | None = None
    ) -> None:
        self.header = header
        self.connection = connection
        self.services = services
        self.round = round

    @property
    def budgets(self) -> Budgets:
        """The node's."""
        return self.services.env.budgets

    @property
    def principal(self) -> KafkaPrincipal:
        """The principal that the request is made as."""
        return self.connection.principal

    @property
    def host(self) -> str:
        """The client's address, without its port."""
        return self.connection.peer.rpartition(":")[0]

    @property
    def authorizer(self) -> Authorizer | None:
        """Decides on what the request asks for; None if it may do everything."""
        services = self.services
        return services.authorizer if services.authorizer_of is None else services.authorizer_of(self)

    @property
    def meter(self) -> RequestMeter | None:
        """Measures the request; None if its client has no quota."""
        return None

    @property
    def api_version(self) -> int:
        """The version of the request, which the response is encoded in too."""
        return self.header.api_version


class MeteredContext(RequestContext):
    """A request of a client with a quota."""

    __slots__ = ("_meter",)

    def __init__(
        self, header: RequestHeader, connection: Connection, services: Services, meter: RequestMeter | None
    ) -> None:
        super().__init__(header, connection, services)
        self._meter = meter

    @property
    def meter(self) -> RequestMeter | None:
        """Measures the request."""
        return self._meter


class ForwardedContext(RequestContext):
    """A client's request that another node, or this one, passes on to the active controller.

    ``connection`` belongs to the node that passed it on. The client's principal and address come from an Envelope of
    a node that may send one, or from this node's own connection to the client.
    """

    __slots__ = ("_host", "_principal")

    def __init__(
        self, header: RequestHeader, connection: Connection, services: Services, principal: KafkaPrincipal, host: str
    ) -> None:
        super().__init__(header, connection, services)
        self._principal = principal
        self._host = host

    @property
    def principal(self) -> KafkaPrincipal:
        """The client."""
        return self._principal

    @property
    def host(self) -> str:
        """The client's address, without its port."""
        return self._host


class OwnContext(RequestContext):
    """A request that the node makes to its own controller, on its own account.

    It never was on a network, so there is no principal that could be denied: the authorizer is not asked.
    """

    __slots__ = ()

    is_own = True

    @property
    def authorizer(self) -> None:
        """No one."""
        return None
