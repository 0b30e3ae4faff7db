"""Partitions with fewer replicas than they had, or other ones."""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.sim.cluster import SimCluster
from kbroker.sim.cluster_scenarios.registry import scenario
from kbroker.sim.cluster_scenarios.steps import await_progress, begin, isolate, some_chaos
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
    await cluster.run_for(2)  # what both had is acknowledged, and a packet may be lost on its way
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


@scenario(nodes=4, cores=2, replica_high_watermark_checkpoint_interval_ms="500")
async def hand_overs(cluster: SimCluster) -> None:
    """Partitions move between two nodes of a machine, which hand their logs over, while nodes are killed at any step,
    stop, stand still and are cut off; some have one replica, some another one on another machine."""
    rng = cluster.rng
    partitions = await begin(cluster, assignments={0: [1], 1: [4], 2: [1], 3: [4]}, min_isr=1)
    client = cluster.client()
    for tp, replicas in zip(partitions[2:], ([1, 3], [4, 2]), strict=True):
        await client.reassign(tp, replicas)
        await cluster.await_isr(tp, 2)
    for _ in range(6):
        for tp in partitions:
            assigned = cluster.partition(tp)
            if assigned is None or rng.random() < 0.2:
                continue
            moves = {broker: broker + 1 if broker % 2 else broker - 1 for broker in assigned.replicas}
            moving = rng.choice(assigned.replicas)
            wanted = [moves[broker] if broker == moving else broker for broker in assigned.replicas]
            await client.reassign(tp, wanted if len(assigned.adding_replicas) == 0 or rng.random() < 0.3 else None)
        await cluster.run_for(rng.choice((0.0, 0.02, 0.05, 0.1, 0.3)))
        if rng.random() < 0.8:
            node = rng.choice(cluster.brokers)
            what = rng.choice(("kill", "kill", "kill", "stop", "pause", "isolate"))
            if what == "pause" and node.running:
                node.pause()
            elif what == "isolate":
                isolate(cluster, node)
            elif node.broker is not None and what == "stop":
                await node.stop()
            elif node.broker is not None:
                node.kill()
            await cluster.run_for(rng.choice((0.1, 1, 3, 10)))
            await cluster.heal()
        await cluster.run_for(rng.choice((0.5, 2)))
    await cluster.heal()

    def at_rest() -> bool:
        found = [cluster.partition(tp) for tp in partitions]
        return all(each is not None and not each.adding_replicas and not each.removing_replicas for each in found)

    await cluster.until(at_rest, 120, "not all partitions are moved")
    if not sum(node.machine.links for node in cluster.brokers):
        raise Violation("no log was handed over")
    await cluster.finish(partitions)
