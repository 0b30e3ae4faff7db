"""The replica that a consumer is sent to (KIP-392), as ``org.apache.kafka.common.replica`` chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from kbroker.types import TopicPartition
from kbroker.value_types import NamedTuple

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The value of ``replica.selector.class`` with which consumers are sent to replicas near them."""


class ReplicaView(NamedTuple):
    """A replica in the ISR that has what the consumer asks for."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    behind_ms: int = 0
    """Since when it has not been caught up."""


def select_by_rack(leader: ReplicaView, followers: Sequence[ReplicaView], rack: str) -> int:
    """The leader if it is in the consumer's rack or nobody is; else the one there that has most."""
    near = [replica for replica in followers if replica.rack == rack]
    if not rack or not near or leader.rack == rack:
        return leader.broker_id
    return max(near, key=lambda replica: (replica.log_end_offset, -replica.behind_ms, replica.broker_id)).broker_id


ReplicaSelector: TypeAlias = Callable[[TopicPartition, ReplicaView, Sequence[ReplicaView]], int]
"""The broker id of the replica that a consumer is to read from, given the partition, its leader and followers."""


def rack_selector(rack: str) -> ReplicaSelector:
    """The selector by racks, for a consumer in this one."""
    return lambda _, leader, followers: select_by_rack(leader, followers, rack)
