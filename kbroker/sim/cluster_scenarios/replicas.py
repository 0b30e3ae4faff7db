"""Partitions with fewer replicas than they had, or other ones."""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.sim.cluster import SimCluster
from kbroker.sim.cluster_scenarios.registry import scenario
from kbroker.sim.cluster_scenarios.steps import await_progress, begin, some_chaos
from kbroker.sim.world import Violation
from kbroker.types import TopicPartition


@scenario()
async def min_isr(cluster: SimCluster) -> None:
    """With one of two replicas gone and two required, acks=all is refused until it is back."""
    partitions = await begin(cluster, assignments={0: [1, 2]})
    tp = partitions[0]
    node = cluster.nodes[cluster.rng.choice((1, 2))]
    node.kill()
    await cluster.await_isr(tp, 1, within=60)
    before = cluster.history.acknowledgements
    await cluster.run_for(5)
    if cluster.history.acknowledgements != before:
        raise Violation(f"acknowledged with too few in-sync replicas: {cluster.describe()}")
    if not cluster.history.refusals.get("NOT_ENOUGH_REPLICAS"):
        raise Violation(f"no producer was refused: {cluster.history.refusals}, {cluster.describe()}")
    node.start()
    await cluster.await_full_isr(partitions, within=120)
    await await_progress(cluster)
    await cluster.finish(partitions)


@scenario(controllers=3)
async def last_replica_standing(cluster: SimCluster) -> None:
    """All replicas but one go, then that one too, without its unflushed records: an eligible leader that went in good
    order has all that was committed (KIP-966)."""
    partitions = await begin(cluster, assignments={0: [1, 2, 3]})
    tp = partitions[0]
    await cluster.await_full_isr(partitions)
    leader = await cluster.await_leader(tp)
    others = [node for node in cluster.brokers if node is not leader]
    cluster.rng.shuffle(others)
    for node in others:
        await node.stop()
        await cluster.run_for(cluster.rng.uniform(0, 5))
    assigned = cluster.partition(tp)
    if assigned is None or set(assigned.isr) != {leader.id} or not assigned.elr:
        raise Violation(f"the last replica is not alone in the ISR with others eligible: {cluster.describe()}")
    leader.crash()
    await cluster.run_for(cluster.rng.uniform(0, 12))
    for node in cluster.rng.sample(cluster.brokers, 3):
        node.start()
        await cluster.run_for(cluster.rng.uniform(0, 5))
    await cluster.await_serving()
    await await_progress(cluster)
    await cluster.finish(partitions)


@scenario(nodes=4)
async def reassignments(cluster: SimCluster) -> None:
    """Partitions are moved from brokers to others, and moves given up, while brokers die, stop and stand still."""
    partitions = await begin(cluster)
    client, rng = cluster.client(), cluster.rng
    wanted: dict[TopicPartition, list[int] | None] = {}
    unanswered: dict[TopicPartition, list[list[int] | None]] = {tp: [] for tp in partitions}
    """May be heard at any time, also after later ones: a broker has them wait for a controller (`by_controller`)."""
    for _ in range(4):
        for tp in partitions:
            wanted[tp] = rng.sample(cluster.ids, 3) if rng.random() < 0.85 else None
            code = await client.reassign(tp, wanted[tp])
            if code not in (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.NOT_CONTROLLER, None):
                raise Violation(f"{tp}: a move to {wanted[tp]} is answered {code}")
            if code in (ErrorCode.NOT_CONTROLLER, None):
                unanswered[tp].append(wanted[tp])
            if code != ErrorCode.NONE:
                del wanted[tp]  # it may have been heard all the same
        await some_chaos(cluster, 2)
    await cluster.heal()

    def moved() -> bool:
        for tp in partitions:
            assigned = cluster.partition(tp)
            if assigned is None or assigned.adding_replicas or assigned.removing_replicas:
                return False
            ends = [wanted.get(tp), *unanswered[tp]]
            if None not in ends and list(assigned.replicas) not in ends:
                return False
        return True

    await cluster.until(moved, 120, f"not all partitions are moved, {wanted}, {unanswered}")
    await cluster.finish(partitions)
