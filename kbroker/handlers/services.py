"""The seam between the handlers and the node: for each part of the node, what handlers may ask of it.

The node's own classes have these methods and more (``kbroker.node``); handlers are below them and know these protocols
alone. They exist for the type checker: a node that runs does not import this module.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import trio

from kbroker.coordinator.result import CoordinatorResult, Token, TransactionalWriter
from kbroker.errors import ApiError, ErrorCode
from kbroker.groups.group_coordinator import GroupCoordinator
from kbroker.groups.settings import GroupSettings
from kbroker.handlers.requester import Requester
from kbroker.later import Later
from kbroker.log.dirs.description import LogDirDescription
from kbroker.log.log_config import LogConfig
from kbroker.log.partition_log import AppendInfo, PartitionLog
from kbroker.log.producer_state import VerificationGuard
from kbroker.quotas.entities import ClientLimits
from kbroker.raft_metadata.config_schema import ConfigSchema
from kbroker.raft_metadata.controller import ControllerResult, ControllerView
from kbroker.raft_metadata.controller.brokers import BrokerRegistration
from kbroker.raft_metadata.controller.sessions import Heartbeat, HeartbeatState
from kbroker.raft_metadata.image import MetadataImage
from kbroker.raft_metadata.raft.messages import RaftRequest, RaftResponse
from kbroker.raft_metadata.raft.quorum_description import QuorumDescription
from kbroker.raft_metadata.topics import NewTopic
from kbroker.replication.fetch_params import FetchParams, FetchResult
from kbroker.replication.fetch_view import FetchView
from kbroker.replication.offset_waiter import Appended, Key
from kbroker.replication.partition_state import PartitionState
from kbroker.replication.purgatory import Purgatory
from kbroker.replication.replication_quota import ReplicationQuota
from kbroker.round import Round
from kbroker.security.principal import KafkaPrincipal
from kbroker.transactions.coordinator import ProducerIdAndEpoch, TransactionCoordinator
from kbroker.transactions.marker import TransactionMarker
from kbroker.transactions.settings import TransactionSettings
from kbroker.types import TopicPartition, Uuid
from kbroker.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kbroker.wire.messages.push_telemetry import PushTelemetryRequest
from kbroker.wire.records.metadata import UserScramCredentialRecord

T = TypeVar("T")
R = TypeVar("R")
C = TypeVar("C", covariant=True)


Placed = tuple[int, int, int, int]
"""Of a gathered batch: first and last offset, log append time (-1 without one), log start offset."""


# --- Partitions and their logs ----------------------------------------------------------------------------------


class Partition(Protocol):
    """A partition of which this node has a replica: its state in replication, and its log."""

    topic_partition: TopicPartition
    topic_id: Uuid
    config: LogConfig
    state: PartitionState
    is_internal: bool
    offline: bool
    on_write_failed: list[Callable[[ApiError], None]]
    """Called if a batch that `gather` has taken cannot be written; there once it has taken one in this round."""

    @property
    def log(self) -> PartitionLog:
        """The log, made when it is first asked for. ``ApiError`` KAFKA_STORAGE_ERROR if its disk has failed."""
        ...

    @property
    def has_log(self) -> bool:
        """Whether the log exists already."""
        ...

    @property
    def must_flush(self) -> bool:
        """Whether ``flush.messages`` asks for a flush before what was appended may be acknowledged."""
        ...

    @property
    def high_watermark(self) -> int:
        """The exclusive end of what is committed."""
        ...

    @property
    def high_watermark_lags(self) -> bool:
        """Whether it is from before this leader's epoch."""
        ...

    @property
    def last_stable_offset(self) -> int:
        """The exclusive end of what read_committed may see."""
        ...

    def acknowledges_at_once(self, required_acks: int) -> bool:
        """Whether an append with ``acks`` of 1 or -1 waits for nothing."""
        ...

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """``ApiError`` if a client believes in another leader epoch (-1: in none)."""
        ...

    def append(
        self,
        records: memoryview,
        required_acks: int,
        now_ms: int,
        verification_guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Append as leader, then wake whoever waits. ``ApiError`` for a refused batch."""
        ...

    def gather(self, records: memoryview, required_acks: int, now_ms: int, round: Round) -> Placed | None:
        """Judge a batch now and, if it is small, have it written with others of the round at its end.

        None, or ``ApiError``: nothing has happened, and `append` has to see the batch.
        """
        ...

    async def flush(self) -> None:
        """Make the log durable. ``ApiError`` KAFKA_STORAGE_ERROR."""
        ...

    def storage_failed(self, error: BaseException) -> None:
        """An operation on the log has failed: its log directory goes offline."""
        ...

    def low_watermark(self) -> int:
        """The least log start offset of the replicas whose brokers live."""
        ...

    def check_follower(self, replica: int, broker_epoch: int) -> None:
        """``ApiError`` for a fetch by a stranger, or by an earlier life of a broker."""
        ...

    def follower_fetched(self, replica: int, fetch_offset: int, log_start_offset: int, broker_epoch: int = -1) -> None:
        """Note a follower's progress; the high watermark may follow, and the ISR."""
        ...

    def preferred_read_replica(self, fetch_offset: int, rack: str) -> int:
        """The follower that a consumer in ``rack`` had better read from; -1 if that is this leader."""
        ...


class ThrottledReplication(Protocol):
    """The quotas of replication traffic."""

    leader: ReplicationQuota

    def now_ms(self) -> int:
        """The time by which they count."""
        ...


class DescribedLogDirs(Protocol):
    """The node's log directories (``node.replica_log_dirs``)."""

    def describe(self) -> list[LogDirDescription]:
        """Each directory with its logs."""
        ...


class LogMover(Protocol):
    """Moves logs between the node's log directories (``node.log_mover``)."""

    def alter(self, topic: str, index: int, path: str) -> None:
        """Have a replica's log moved to another directory. ``ApiError``."""
        ...


class ReplicaFetchers(Protocol):
    """The tasks that copy what other brokers lead."""

    async def until_clear(self) -> frozenset[int]:
        """Wait a moment if the metadata name leaders that seem to be dead; the brokers there was reason to wait for."""
        ...


class Partitions(Protocol):
    """The partitions of which this node has a replica (``node.replica_manager``)."""

    purgatory: Purgatory

    @property
    def partitions(self) -> Mapping[tuple[str, int], Partition]:
        """By topic and index."""
        ...

    @property
    def log_dirs(self) -> DescribedLogDirs: ...

    @property
    def log_mover(self) -> LogMover: ...

    @property
    def throttles(self) -> ThrottledReplication: ...

    @property
    def fetchers(self) -> ReplicaFetchers | None:
        """None on a node without others."""
        ...

    def get_partition(self, topic: str, partition: int) -> Partition:
        """``ApiError`` UNKNOWN_TOPIC_OR_PARTITION, or NOT_LEADER_OR_FOLLOWER if others have it."""
        ...

    def get_leader(self, topic: str, partition: int, current_leader_epoch: int = -1) -> Partition:
        """As `get_partition`; ``ApiError`` too if it is not led here, or in another epoch."""
        ...

    def topic_id(self, name: str) -> Uuid | None:
        """The id of a topic, by the metadata."""
        ...

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of a topic, by the metadata."""
        ...

    def exists(self, topic: str, partition: int) -> bool:
        """Whether the metadata knows the partition."""
        ...

    def start_soon(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Start a task that lives with the node and must not fail."""
        ...

    def watch_produce(
        self, appends: Sequence[Appended], on_complete: Callable[[dict[Key, Any]], None], timeout_ms: int
    ) -> None:
        """Have ``on_complete`` called with None or an error for each partition, once all is replicated or cannot be."""
        ...

    def delete_records(self, topic: str, index: int, offset: int) -> int:
        """Move the log start offset; where it is now. ``ApiError``."""
        ...


class FetchReader(Protocol):
    """Reads the partitions of Fetch requests (``node.fetch_reader``)."""

    async def fetch(self, params: FetchParams, view: FetchView, connection: Connection) -> FetchResult:
        """Read the partitions of a view; if that is less than ``min_bytes``, wait for events and read again."""
        ...


# --- Coordinators -----------------------------------------------------------------------------------------------


class Coordinator(Protocol[C]):
    """The coordinator of groups or of transactions: a core for each partition of its topic that this node leads."""

    @property
    def TOPIC(self) -> str: ...

    def partition_for(self, key: str) -> int | None:
        """The partition whose leader coordinates a key; None before the topic exists."""
        ...

    def now_ms(self) -> int:
        """The coordinator's time, which no jump of the wall clock changes."""
        ...

    def loaded_core(self, key: str) -> C:
        """The core that coordinates a key. ``ApiError``, also COORDINATOR_LOAD_IN_PROGRESS."""
        ...

    async def until_loaded(self, key: str) -> None:
        """Wait while the core that coordinates a key is being loaded. ``ApiError`` NOT_COORDINATOR."""
        ...

    def run(
        self,
        key: str,
        operation: Callable[[C, int], CoordinatorResult[R] | CoordinatorResult[Token]],
        *,
        gather: bool = False,
        writer: TransactionalWriter = ...,
        outcome: Later[R] | None = None,
    ) -> Later[R]:
        """Run a step; its response once its records are committed. ``ApiError`` if it is refused at once."""
        ...

    async def read(self, key: str, question: Callable[[C], R]) -> R:
        """A core's answer, once all that the core knows is committed. ``ApiError``."""
        ...

    async def read_all(self, question: Callable[[C], R]) -> list[R]:
        """`read`, of all cores of this node."""
        ...


class Groups(Coordinator[GroupCoordinator], Protocol):
    """The group coordinator (``node.group_driver``)."""

    def settings(self) -> GroupSettings:
        """The node's properties of groups, as they are now."""
        ...


class Transactions(Coordinator[TransactionCoordinator], Protocol):
    """The transaction coordinator (``node.transaction_driver``)."""

    settings: TransactionSettings

    def run_when_free(
        self,
        transactional_id: str | None,
        operation: Callable[[TransactionCoordinator, int], CoordinatorResult[R]],
        outcome: Later[R],
        *,
        patience_ms: int,
    ) -> None:
        """Run a step after other changes of the id; ``outcome`` gets its response or any error."""
        ...

    def add_partitions(
        self,
        transactional_id: str | None,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: int,
        outcome: Later[None],
        *,
        patience_ms: int,
    ) -> None:
        """Add partitions to a transaction that this node coordinates."""
        ...

    def add_or_verify(
        self,
        transactional_id: str | None,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
        add: bool,
    ) -> Later[dict[TopicPartition, ErrorCode]]:
        """Ask the transaction's coordinator, wherever that is, about partitions, or to add them."""
        ...

    def knows(self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition) -> bool:
        """Whether this node coordinates the id, and the partition is in its open transaction."""
        ...

    def backoff(self) -> Later[None]:
        """Done when a coordinator may be asked again."""
        ...


class Markers(Protocol):
    """Writes the markers that end transactions (``node.transaction_markers``)."""

    def write(
        self,
        marker: TransactionMarker,
        partitions: Iterable[TopicPartition],
        on_done: Callable[[dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Append a marker to partitions that this node leads; ``on_done`` hears each one's error."""
        ...


class ProducerIds(Protocol):
    """Producer ids that the controller has granted this node (``node.producer_ids``)."""

    async def ensure(self) -> None:
        """Have at least one at hand. ``ApiError`` COORDINATOR_LOAD_IN_PROGRESS."""
        ...

    async def next_id(self) -> int:
        """A new one. ``ApiError`` as `ensure`."""
        ...


# --- Work that takes turns --------------------------------------------------------------------------------------


class TimestampLookupQueue(Protocol):
    """Look-ups by timestamp, in turns with everything else (``node.timestamp_lookup_queue``)."""

    def add(self, connection: Connection, steps: Iterator[None], count: int, on_done: Callable[[], None]) -> bool:
        """Run ``count`` steps, then call ``on_done``. False if too much waits."""
        ...


class LongSteps(Protocol):
    """Keeps changes of very many parts, which clients ask the controller for, apart (``node.long_steps``)."""

    async def turn(self) -> None:
        """Wait until the caller may make a step that takes long."""
        ...


class ProduceQueue(Protocol):
    """Produce requests that cannot be appended in one go, and those behind them (``node.produce_queue``)."""

    @property
    def waiting(self) -> Collection[str]:
        """The addresses of clients whose next Produce has to wait its turn."""
        ...

    async def wait_for_room(self, peer: str) -> None:
        """Wait, before more is read from a client, while too much waits and some of it is the client's."""
        ...

    def add(
        self,
        connection: Connection,
        work: Generator[Callable[[], Any] | Later[Any] | None, Any, Any],
        step: Callable[[], Any] | Later[Any] | None,
        size: int,
        on_done: Callable[[Any], None],
        *,
        needs_answer: bool,
    ) -> bool:
        """Go on with a request's work. False if too much waits."""
        ...


# --- Quotas of clients ------------------------------------------------------------------------------------------


class RequestMeter(Protocol):
    """Measures a request of a client with a quota (``node.client_quotas``)."""

    is_exempt: bool

    def cap_fetch(self, max_bytes: int) -> int:
        """At most ``max_bytes``: so many that not every answer is throttled."""
        ...

    def fetched(self, size: int) -> int:
        """Count an answer of so many bytes. Milliseconds of throttling: the client is to get no records then."""
        ...


class MutationQuota(Protocol):
    """The quota of one request that creates or deletes partitions (``node.client_quotas``)."""

    def record(self, partitions: int) -> None:
        """Count changes of so many partitions. ``ApiError`` THROTTLING_QUOTA_EXCEEDED if there may be none now."""
        ...

    @property
    def throttle_ms(self) -> int:
        """Milliseconds that the client is to wait, from now on."""
        ...


class DispatchedMeter(RequestMeter, Protocol):
    """A meter as the dispatcher uses it, which makes it when the request begins."""

    def start(self) -> None:
        """Work for the request goes on."""
        ...

    def stop(self) -> None:
        """Others work from now on."""
        ...

    async def run(self, work: Awaitable[T]) -> T:
        """The outcome of a handler's coroutine, whose work is measured."""
        ...

    def finish(self, api_key: int, request: Any, response: Any, size: int) -> int:
        """Count a request of ``size`` bytes that has been served; the milliseconds that its client is throttled."""
        ...

    def close(self) -> None:
        """The answer is encoded."""
        ...


class Quotas(Protocol):
    """The quotas of users and client ids (``node.client_quotas``)."""

    @property
    def state(self) -> object:
        """Another object after each change."""
        ...

    def limits(self, principal: KafkaPrincipal, client_id: str | None) -> ClientLimits | None:
        """The quotas of a client; None if it has none."""
        ...

    def meter(self, limits: ClientLimits) -> DispatchedMeter:
        """A meter of one request, from now on."""
        ...

    def mutations(self, requester: Requester, strict_since: int) -> MutationQuota | None:
        """The quota of a request that changes topics; None if its client has none.

        From version ``strict_since`` on changes beyond it are refused; before, the client is throttled afterwards.
        """
        ...


class Telemetry(Protocol):
    """Clients' metrics (``node.telemetry``)."""

    def subscriptions_of(
        self, request: GetTelemetrySubscriptionsRequest, ctx: Any
    ) -> GetTelemetrySubscriptionsResponse:
        """The answer to a GetTelemetrySubscriptions."""

    async def push(self, request: PushTelemetryRequest, ctx: Any) -> ErrorCode:
        """Take what a client pushes; the error that it is told."""


class ConnectionRates(Protocol):
    """How fast connections may come (``node.connection_rates``)."""

    def wait_ms(self, listener: str) -> int:
        """Count a connection. For how long its listener is to wait with it."""
        ...

    def refusal_ms(self, listener: str, address: str) -> int:
        """Count a connection from an address: 0 if it may be had. Else for how long to keep it before it is closed."""
        ...


# --- Metadata and the connection --------------------------------------------------------------------------------


class Metadata(Protocol):
    """The cluster's metadata, and the way to its controller (``node.metadata_plane``)."""

    @property
    def image(self) -> MetadataImage:
        """The latest published image."""
        ...

    @property
    def schema(self) -> ConfigSchema:
        """Which configs there are, and where effective values come from."""
        ...

    @property
    def is_alone(self) -> bool:
        """Whether this node is the whole metadata quorum."""
        ...

    @property
    def is_leader(self) -> bool:
        """Whether this node is the active controller."""
        ...

    def scram_credential(self, user: str, mechanism: int) -> UserScramCredentialRecord | None:
        """A user's SCRAM credential; before there is an image, the one on this node's disk."""
        ...

    def finalized_features(self) -> tuple[Mapping[str, int], int]:
        """Finalized feature levels, and the epoch that ApiVersions gives them."""
        ...

    def describe_quorum(self) -> QuorumDescription:
        """The leader of the metadata quorum, its voters and observers, and the end of each one's log."""
        ...

    def check_registration(self, registration: BrokerRegistration) -> None:
        """``ApiError`` DUPLICATE_BROKER_REGISTRATION if another node has the id and lives."""
        ...

    async def heartbeat(self, beat: Heartbeat, connection: Connection) -> HeartbeatState:
        """A broker shows on a connection that it lives; what it is to hear. ``ApiError``."""
        ...

    async def ask_quorum(self, request: RaftRequest) -> RaftResponse:
        """The Raft core's answer to another replica."""
        ...

    async def create_topics(
        self, topics: Sequence[NewTopic], requester: Requester | None = None
    ) -> Mapping[str, object]:
        """Create topics; by name an ``ApiError``, or something else if it went well.

        ``requester`` is the client's request that needs them, whose principal must be allowed to create them. Without
        one they are created on the node's own account.
        """
        ...

    async def forward(self, request: Any, requester: Requester) -> Any:
        """Another node's answer, as the active controller, to a client's request; None if it cannot be had."""
        ...

    async def submit(self, operation: Callable[[ControllerView], ControllerResult[T]]) -> T:
        """Run a step on the active controller; its response once its records are published. ``ApiError``."""
        ...


class Awaited(Protocol):
    """The end of a wait of a request in place: the connection sets ``wake``, which is called when it is ``done``."""

    wake: Callable[[], None] | None

    @property
    def done(self) -> bool: ...


class Connection(Protocol):
    """The connection that a request came on (``node.connection``)."""

    listener_name: str
    is_controller: bool
    peer: str
    principal: KafkaPrincipal
    """Who it belongs to."""
    session: object | None
    """What SASL keeps of it, for authenticating again; None without SASL."""
    closed: bool
    when_closed: list[Callable[[], None]]
    client_software_name: str
    client_software_version: str
    session_ended: bool
    """Whether nothing that comes from now on is for the client's eyes (KIP-368)."""
    scope: trio.CancelScope

    @property
    def is_asked_more(self) -> bool:
        """Whether a request of another API waits behind the Fetch that is being served."""
        ...

    async def flush(self) -> None:
        """Write all replies so far."""
        ...

    async def mute(self, seconds: float) -> None:
        """Write all replies that are in order, and read nothing for this time."""
        ...

    def replace_unsent(self, reply: bytes, response: Any, version: int) -> None:
        """Send ``response`` instead of ``reply``, which was queued in the poller's present round."""
        ...

    async def wait_for(self, operation: Awaited, timeout: float, *, gives_way: bool = False) -> None:
        """Wait until ``operation.done``, the time (seconds) is out, or the client is gone (raises).

        A wait whose time has a limit ends when the session does. With ``gives_way``, stop waiting as soon as another
        request arrives on this connection.
        """
        ...
