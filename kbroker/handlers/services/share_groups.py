"""The parts of share groups (KIP-932) besides the group coordinator, as handlers see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.share_coordinator.coordinator import ShareCoordinator
from kbroker.cores.share_partitions.acknowledging import AcknowledgementBatch
from kbroker.cores.share_partitions.requests import Denied, ShareFetched, ShareFetchParams, TopicIdPartition
from kbroker.cores.share_partitions.sessions import ShareSessions
from kbroker.cores.share_partitions.settings import ShareGroupSettings
from kbroker.cores.share_state import Persister, SharePartitionKey
from kbroker.errors import ApiError
from kbroker.handlers.services.connection import Connection
from kbroker.handlers.services.coordinators import Coordinator
from kbroker.runtime.later import Later

if TYPE_CHECKING:
    from kbroker.cores.share_partitions.in_flight_view import InFlightView

T = TypeVar("T")
R = TypeVar("R")


class ShareGroups(Protocol):
    """The parts of share groups, of which a node has one each."""

    @property
    def coordinators(self) -> ShareCoordinators:
        """Returns the share coordinator."""

    @property
    def persister(self) -> Persister:
        """Returns the way to the share coordinator of a share partition."""

    @property
    def partitions(self) -> SharePartitions:
        """Returns the share partitions that this node leads."""


class ShareCoordinators(Coordinator[ShareCoordinator], Protocol):
    """The share coordinator: a core for each partition of ``__share_group_state`` that this node leads."""

    def run_each(
        self,
        items: Mapping[SharePartitionKey, T],
        step: Callable[[ShareCoordinator, SharePartitionKey, T, int], CoordinatorResult[R]],
    ) -> Later[dict[SharePartitionKey, R | ApiError]]:
        """Run a step for each share partition; each one's response, once it is committed, or its error."""

    def write_each(
        self,
        items: Mapping[SharePartitionKey, T],
        step: Callable[[ShareCoordinator, SharePartitionKey, T, int], CoordinatorResult[R]],
    ) -> Later[dict[SharePartitionKey, R | ApiError]]:
        """`run_each` for states that are to be kept, which metrics count."""


class SharePartitions(Protocol):
    """The share partitions that this node leads, and the share sessions of their readers."""

    @property
    def sessions(self) -> ShareSessions:
        """Members that fetch from this node."""

    def settings(self, group_id: str) -> ShareGroupSettings:
        """The settings of a group, as they are now."""

    async def fetch(
        self, params: ShareFetchParams, partitions: Sequence[TopicIdPartition], connection: Connection, denied: Denied
    ) -> dict[TopicIdPartition, ShareFetched]:
        """Hand out records; if there are less than ``min_bytes``, wait for some. Those that were read, in order.

        A partition's error is in its part. ``ConnectionLost`` when the client goes away meanwhile. ``denied`` is asked
        when the authorizer's rules have changed during a wait, before anything is handed out; its ``ApiError`` is
        raised.
        """

    def give_back(self, params: ShareFetchParams, fetched: Mapping[TopicIdPartition, ShareFetched]) -> None:
        """Take back what a member has not been sent, as if it had never been handed out."""

    async def acknowledge(
        self, group_id: str, member_id: str, batches: Mapping[TopicIdPartition, Sequence[AcknowledgementBatch]]
    ) -> dict[TopicIdPartition, ApiError | None]:
        """Take a member's word for records that it holds; the answer of each partition, once that is kept."""

    def open_session(
        self, group_id: str, member_id: str, partitions: Iterable[TopicIdPartition], connection: Connection
    ) -> None:
        """Open a member's session anew; it ends with its connection. ``ApiError`` SHARE_SESSION_LIMIT_REACHED."""

    def close_session(self, group_id: str, member_id: str) -> None:
        """End a member's session: what it holds is there for others."""

    def in_flight(self, group_id: str, wanted: TopicIdPartition, most: int) -> InFlightView | None:
        """The records in flight, in at most so many ranges; None where no member has read since this node leads.

        ``ApiError`` if this node does not lead the partition.
        """

    def read_here(self) -> dict[str, list[TopicIdPartition]]:
        """Group -> the partitions led here that its members have read."""
