"""The coordinators of groups and of transactions, made from a node's other parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.config import BrokerConfig
from kbroker.cores.groups.own_assignors import NO_OWN_ASSIGNORS, OwnAssignors
from kbroker.cores.groups.settings import GroupSettings
from kbroker.cores.transactions.settings import TransactionSettings
from kbroker.node.coordinators.broker_requests import MARKERS, MEMBERSHIP, BrokerRequests
from kbroker.node.coordinators.group_driver import GroupDriver
from kbroker.node.coordinators.producer_ids import ProducerIdAllocator
from kbroker.node.coordinators.transaction_driver import TransactionDriver
from kbroker.node.coordinators.transaction_markers import MarkerWriter
from kbroker.node.dynamic_broker_config import DynamicBrokerConfig
from kbroker.node.replicas.replica_manager import ReplicaManager
from kbroker.raft_metadata.config_schema import group_config
from kbroker.value_types import NamedTuple
from kbroker.wire.compression import CompressionType

if TYPE_CHECKING:
    from kbroker.node.peers.peer_pool import PoolFor
    from kbroker.raft_metadata.image import MetadataImage
    from kbroker.runtime.env import Env


class Coordinators(NamedTuple):
    """The coordinators of a broker, and the writer of transaction markers."""

    groups: GroupDriver
    transactions: TransactionDriver
    markers: MarkerWriter


def make_coordinators(
    config: BrokerConfig,
    env: Env,
    replica_manager: ReplicaManager,
    dynamic_config: DynamicBrokerConfig,
    producer_ids: ProducerIdAllocator,
    pool_for: PoolFor,
    own_assignors: OwnAssignors = NO_OWN_ASSIGNORS,
) -> Coordinators:
    """Return the coordinators of one broker."""
    group_settings = GroupSettings.from_config(config)
    groups = GroupDriver(
        env=env,
        replica_manager=replica_manager,
        settings=lambda: group_settings,
        group_config=lambda image, group_id: group_config(image, config, group_id),
        peers=pool_for("latest-offsets"),
        linger_ms=config.group_coordinator_append_linger_ms,
        codec=CompressionType(config.offsets_topic_compression_codec),
        own_assignors=own_assignors,
    )

    def transaction_settings(image: MetadataImage) -> TransactionSettings:
        return TransactionSettings.from_config(dynamic_config.with_prefix("transaction."))

    markers = MarkerWriter(env, replica_manager, groups, config.request_timeout_ms)
    transactions = TransactionDriver(
        env=env,
        replica_manager=replica_manager,
        settings=transaction_settings,
        producer_ids=producer_ids,
        markers=markers,
        remote_markers=BrokerRequests(MARKERS, pool_for, replica_manager.start_soon),
        remote_coordinators=BrokerRequests(MEMBERSHIP, pool_for, replica_manager.start_soon),
    )
    return Coordinators(groups, transactions, markers)
