"""The coordinators of groups and of transactions, made from a node's other parts."""

from __future__ import annotations

from collections.abc import Callable
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
    from kbroker.raft_metadata.image import MetadataImage
    from kbroker.runtime.env import Env, Network


class Coordinators(NamedTuple):
    """The coordinators of a broker, and the writer of transaction markers."""

    groups: GroupDriver
    transactions: TransactionDriver
    markers: MarkerWriter


def make_coordinators(
    config: BrokerConfig,
    env: Env,
    network: Network,
    replica_manager: ReplicaManager,
    dynamic_config: DynamicBrokerConfig,
    producer_ids: ProducerIdAllocator,
    address_of: Callable[[int], tuple[str, int] | None],
    own_assignors: OwnAssignors = NO_OWN_ASSIGNORS,
) -> Coordinators:
    """The coordinators of one broker; ``address_of`` gives the address of another broker, ``network`` reaches it."""
    group_settings = GroupSettings.from_config(config)
    groups = GroupDriver(
        env=env,
        replica_manager=replica_manager,
        settings=lambda: group_settings,
        group_config=lambda image, group_id: group_config(image, config, group_id),
        network=network,
        address_of=address_of,
        request_timeout_ms=config.request_timeout_ms,
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
        remote_markers=BrokerRequests(MARKERS, network, config, replica_manager.start_soon, address_of),
        remote_coordinators=BrokerRequests(MEMBERSHIP, network, config, replica_manager.start_soon, address_of),
    )
    return Coordinators(groups, transactions, markers)
