"""The quorum as a node's properties describe it: its timeouts, its voters, the addresses of this node."""

from __future__ import annotations

from kbroker.config import BrokerConfig
from kbroker.raft_metadata.raft.messages import Node
from kbroker.raft_metadata.raft.types import RaftConfig
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterEndpoint, VoterNode, VoterSet


def raft_config(config: BrokerConfig) -> RaftConfig:
    """The settings of the core, from ``controller.quorum.*``."""
    return RaftConfig(
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
        fetch_snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
        auto_join=config.controller_quorum_auto_join_enable,
    )


def controller_listener(config: BrokerConfig) -> str:
    """The name of the listener that the quorum's nodes use among themselves, the first controller listener."""
    names = config.controller_listener_names
    return names[0] if names else "CONTROLLER"


def static_voters(config: BrokerConfig) -> VoterSet:
    """The voters of ``controller.quorum.voters``. Their disks and levels are not known: they tell them their leader."""
    listener = controller_listener(config)
    return VoterSet.of(
        VoterNode(ReplicaKey(voter.node_id), {listener: VoterEndpoint(voter.host, voter.port)}, 0, 0)
        for voter in config.controller_quorum_voters
    )


def bootstrap_nodes(config: BrokerConfig) -> list[Node]:
    """The nodes to ask for the leader: ``controller.quorum.bootstrap.servers``, or without them the static voters."""
    addresses = [VoterEndpoint(host, port) for host, port in config.controller_quorum_bootstrap_servers] or [
        VoterEndpoint(voter.host, voter.port) for voter in config.controller_quorum_voters
    ]
    return [Node(-2 - index, address) for index, address in enumerate(addresses)]
