"""The state of a cluster as each node describes it, for the table of ``kbroker up`` and for health checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.client import Client


@dataclass(frozen=True, slots=True)
class NodeState:
    """The state of a broker. ``out_of_sync`` counts the partitions whose ISR lacks it though it has a replica."""

    leads: int = 0
    replicas: int = 0
    out_of_sync: int = 0
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterState:
    """``controller`` is the active controller, None without one; ``nodes`` are those that are registered."""

    cluster_id: str | None
    controller: int | None
    nodes: dict[int, NodeState] = field(default_factory=dict)
    topics: int = 0
    partitions: int = 0
    leaderless: int = 0
    """Partitions that nobody leads."""
    short: int = 0
    """Partitions whose ISR lacks a replica."""


def ask_state(client: Client) -> ClusterState:
    """Ask any node; ``ClientError`` when none answers."""
    from kbroker.client import ClientError
    from kbroker.client.nodes import describe_cluster, describe_quorum

    cluster = describe_cluster(client)
    try:
        leader = int(describe_quorum(client).topics[0].partitions[0].leader_id)
    except ClientError:
        leader = -1
    topics = client.refresh(None)
    partitions = [
        (int(entry.leader_id), list(entry.replica_nodes), list(entry.isr_nodes))
        for topic in topics
        for entry in topic.partitions
    ]
    return summarise(
        cluster.cluster_id,
        leader if leader >= 0 else None,
        {broker.id: bool(broker.fenced) for broker in cluster.brokers},
        len(topics),
        partitions,
    )


def summarise(
    cluster_id: str | None,
    controller: int | None,
    brokers: dict[int, bool],
    topics: int,
    partitions: list[tuple[int, list[int], list[int]]],
) -> ClusterState:
    """``brokers``: id -> whether it is fenced; ``partitions``: leader, replicas and ISR of each."""
    leads = dict.fromkeys(brokers, 0)
    replicas, behind = dict(leads), dict(leads)
    leaderless = short = 0
    for leader, assigned, isr in partitions:
        if leader < 0:
            leaderless += 1
        leads[leader] = leads.get(leader, 0) + 1
        missing = set(assigned) - set(isr)
        short += bool(missing)
        for node in assigned:
            replicas[node] = replicas.get(node, 0) + 1
            behind[node] = behind.get(node, 0) + (node in missing)
    return ClusterState(
        cluster_id,
        controller,
        {
            node: NodeState(leads[node], replicas[node], behind[node], fenced)
            for node, fenced in sorted(brokers.items())
        },
        topics,
        len(partitions),
        leaderless,
        short,
    )


def problems(state: ClusterState, *, broker: int | None = None, complete: bool = False) -> list[str]:
    """List the problems of a node that has answered; with ``complete``, also those of the cluster around it."""
    found: list[str] = []
    if state.controller is None:
        found.append("there is no active controller")
    if broker is not None:
        node = state.nodes.get(broker)
        if node is None or node.fenced:
            found.append(f"broker {broker} is {'not registered' if node is None else 'fenced'}")
    if complete:
        found += [f"broker {node_id} is fenced" for node_id, node in state.nodes.items() if node.fenced]
        if state.leaderless:
            found.append(f"{state.leaderless} of {state.partitions} partitions have no leader")
        if state.short:
            found.append(f"{state.short} of {state.partitions} partitions have replicas that are not in sync")
    return found
