"""The coordinators of groups and transactions, and what they need of the node, as handlers see them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from kbroker.config import GroupConfig
from kbroker.cores.coordinator.result import CoordinatorResult, Token, TransactionalWriter
from kbroker.cores.groups.group_coordinator import GroupCoordinator
from kbroker.cores.groups.settings import GroupSettings
from kbroker.cores.transactions.coordinator import ProducerIdAndEpoch, TransactionCoordinator
from kbroker.cores.transactions.settings import TransactionSettings
from kbroker.cores.transactions.transaction import TransactionMarker
from kbroker.errors import ErrorCode
from kbroker.runtime.later import Later
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.cores.coordinator.result import Outcome
    from kbroker.cores.groups.streams_protocol import StreamsHeartbeatResult
    from kbroker.runtime.round import Round
    from kbroker.wire.messages.streams_groups import DescribedGroup, StreamsGroupTopologyDescriptionUpdateRequest

R = TypeVar("R")
C = TypeVar("C", covariant=True)


class Coordinator(Protocol[C]):
    """The coordinator of groups or of transactions: a core for each partition of its topic that this node leads."""

    @property
    def TOPIC(self) -> str: ...

    def partition_for(self, key: str) -> int | None:
        """The partition whose leader coordinates a key; None before the topic exists."""

    def now_ms(self) -> int:
        """The coordinator's time, which no jump of the wall clock changes."""

    def loaded_core(self, key: str) -> C:
        """The core that coordinates a key. ``ApiError``, also COORDINATOR_LOAD_IN_PROGRESS."""

    async def until_loaded(self, key: str) -> None:
        """Wait while the core that coordinates a key is being loaded. ``ApiError`` NOT_COORDINATOR."""

    def run(
        self,
        key: str,
        operation: Callable[[C, int], CoordinatorResult[R] | CoordinatorResult[Token]],
        *,
        gather: bool = False,
        round: Round | None = None,
        writer: TransactionalWriter = ...,
        outcome: Later[R] | None = None,
    ) -> Later[R]:
        """Run a step; its response once its records are committed. ``ApiError`` if it is refused at once."""

    def run_in_round(
        self, key: str, operation: Callable[[C, int], CoordinatorResult[R]], round: Round, outcome: Outcome
    ) -> bool:
        """Run a step that is committed at the end of a round, or ``outcome`` has failed. False, and nothing is
        done, if that may take longer; ``ApiError`` if the step is refused at once."""

    async def read(self, key: str, question: Callable[[C], R]) -> R:
        """A core's answer, once all that the core knows is committed. ``ApiError``."""

    async def read_all(self, question: Callable[[C], R]) -> list[R]:
        """`read`, of all cores of this node."""


class Descriptions(Protocol):
    """The descriptions of streams groups' topologies (``node.rules.topology_descriptions``, KIP-1331)."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Calls of the keeper, and rounds of cleaning, for metrics."""

    def is_wanted(self, group_id: str, result: StreamsHeartbeatResult) -> bool:
        """Whether the member whose heartbeat had this result is to send the description."""

    async def push(self, request: StreamsGroupTopologyDescriptionUpdateRequest) -> None:
        """Have the description of a member stored. ``ApiError``."""

    async def attach(self, entry: DescribedGroup, stored_epoch: int) -> None:
        """Add the description to a group that is described, and the status of it."""

    async def delete(self, group_id: str) -> None:
        """Delete what is kept of a group that is to be deleted. ``ApiError``."""

    async def before_join(self, group_id: str) -> None:
        """Delete what is kept of an empty streams group that a classic member is about to take the place of."""


class Groups(Coordinator[GroupCoordinator], Protocol):
    """The group coordinator (``node.coordinators.group_driver``)."""

    descriptions: Descriptions | None
    """None on a node that keeps no descriptions of topologies."""

    def settings(self) -> GroupSettings:
        """The node's properties of groups, as they are now."""

    def group_config(self, group_id: str) -> GroupConfig:
        """The configs in force for a group."""

    def commit_time_ms(self, now_ms: int) -> int:
        """The time that a commit is stored with: the wall clock's, where that is ahead of ``now_ms``."""

    async def latest_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | ErrorCode]:
        """The ends of partitions, wherever they are led, or the reasons why they are not known."""


class Transactions(Coordinator[TransactionCoordinator], Protocol):
    """The transaction coordinator (``node.coordinators.transaction_driver``)."""

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

    def add_or_verify(
        self,
        transactional_id: str | None,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
        add: bool,
    ) -> Later[dict[TopicPartition, ErrorCode]]:
        """Ask the transaction's coordinator, wherever that is, about partitions, or to add them."""

    def knows(self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition) -> bool:
        """Whether this node coordinates the id, and the partition is in its open transaction."""

    def backoff(self) -> Later[None]:
        """Done when a coordinator may be asked again."""


class Markers(Protocol):
    """Writes the markers that end transactions (``node.coordinators.transaction_markers``)."""

    def write(
        self,
        marker: TransactionMarker,
        partitions: Iterable[TopicPartition],
        on_done: Callable[[dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Append a marker to partitions that this node leads; ``on_done`` hears each one's error."""


class ProducerIds(Protocol):
    """Producer ids that the controller has granted this node (``node.coordinators.producer_ids``)."""

    async def ensure(self) -> None:
        """Have at least one at hand. ``ApiError`` COORDINATOR_LOAD_IN_PROGRESS."""

    async def next_id(self) -> int:
        """A new one. ``ApiError`` as `ensure`."""
