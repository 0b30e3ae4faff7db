"""The terms of a Fetch request, and the result of serving it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from kbroker.cores.replication.fetch_view import ViewedPartition
from kbroker.cores.replication.replica_selector import ReplicaSelector
from kbroker.value_types import dataclass
from kbroker.wire.messages.fetch import PartitionData

CONSUMER_REPLICA_ID = -1


@dataclass(slots=True)
class FetchParams:
    """The terms of a Fetch request, its partitions apart (Kafka's ``FetchParams``)."""

    replica_id: int
    """The follower's; -1 for a consumer, -2 for a debugging consumer."""
    replica_epoch: int
    """The follower's broker epoch (KIP-903); -1 if it is not known."""
    max_wait_ms: int
    min_bytes: int
    """At most ``max_bytes``."""
    max_bytes: int
    committed_only: bool
    """Isolation level read_committed."""
    only_leader: bool
    """Whether a replica that does not lead must refuse (a client that knows nothing of KIP-392, or a follower)."""
    select: ReplicaSelector | None
    """The selector for a consumer that may be sent to another replica (KIP-392)."""
    uses_topic_ids: bool
    """Topics are named by id (Fetch 13+), and not by name."""
    listener: str
    """The name of the listener that the request has come by."""
    selection: Hashable = None
    """A value that stays the same as long as ``select`` gives the same answers; None if nobody can tell."""
    may_read: Callable[[str | None], bool] | None = None
    """Whether the reader may read the topic of this name (None: an id that is not known), by the rules of the moment;
    None if all may read all."""
    reader: Hashable = None
    """The reader and the rules for it: with another one the partitions of a session are all looked at again."""


class FetchResult(Protocol):
    """The answers of the partitions that were read, in the order of reading; the three sequences are parallel."""

    @property
    def partitions(self) -> Sequence[ViewedPartition]: ...

    @property
    def names(self) -> Sequence[str | None]:
        """Topic names; None for an unknown topic id."""

    @property
    def results(self) -> Sequence[PartitionData]: ...
