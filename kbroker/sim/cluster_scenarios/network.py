"""Nodes that are cut off from others, or slow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kbroker.sim.cluster import SimCluster
from kbroker.sim.cluster_scenarios.registry import scenario
from kbroker.sim.cluster_scenarios.steps import await_progress, begin, isolate
from kbroker.sim.sim_node import SimNode
from kbroker.sim.world import Violation
from kbroker.types import TopicPartition


async def _isolate_twice(
    cluster: SimCluster, partitions: list[TopicPartition], find: Callable[[], Awaitable[SimNode]]
) -> None:
    """Cut a node off; while the others hear one another, they lead all that it led once its session is over."""
    session = int(cluster.properties.get("broker.session.timeout.ms", 9000)) / 1000
    for _ in range(2):
        await cluster.await_full_isr(partitions)
        node = await find()
        if isolate(cluster, node) and cluster.rng.random() < 0.5:
            others = set(cluster.ids) - {node.id}

            def served(others: set[int] = others) -> bool:
                found = [cluster.partition(tp) for tp in partitions]
                return all(each is not None and each.leader in others and set(each.isr) == others for each in found)

            await cluster.until(served, session + 12, f"what {node.name} led is not led by all the others")
        await cluster.run_for(cluster.rng.uniform(1, 25))
        cluster.net.heal()
        cluster.trace.note("healed")
        await await_progress(cluster)
    await cluster.finish(partitions)


@scenario()
async def leader_partitioned(cluster: SimCluster) -> None:
    """A leader is cut off from the other nodes, and clients still reach it: nothing it takes alone is acknowledged."""
    partitions = await begin(cluster)
    await _isolate_twice(cluster, partitions, lambda: cluster.await_leader(partitions[0]))


@scenario()
async def controller_partitioned(cluster: SimCluster) -> None:
    """The active controller is cut off from the other nodes."""
    await _isolate_twice(cluster, await begin(cluster), cluster.await_controller)


@scenario(quiet=True, replica_lag_time_max_ms="3000", broker_session_timeout_ms="9000")
async def slow_followers(cluster: SimCluster) -> None:
    """Followers cannot keep up; the ISR shrinks, to the leader at last, and grows again within two minutes."""
    partitions = await begin(cluster, partitions=1)
    tp = partitions[0]
    leader = await cluster.await_leader(tp)
    followers = [node for node in cluster.nodes.values() if node is not leader]
    cluster.net.slow(followers[0].name, 2.5)
    cluster.trace.note(f"{followers[0].name} is slow")
    await cluster.await_isr(tp, 2, within=60)
    await await_progress(cluster)
    cluster.net.slow(followers[0].name, 0)
    await cluster.await_full_isr(partitions, within=120)
    await cluster.finish(partitions)


@scenario(quiet=True, replica_lag_time_max_ms="10000", broker_session_timeout_ms="9000")
async def far_away(cluster: SimCluster) -> None:
    """A node is started anew where a round trip takes most of a second, and comes back into the quorum."""
    partitions = await begin(cluster)
    node = cluster.rng.choice(list(cluster.nodes.values()))
    node.kill()
    await cluster.run_for(cluster.rng.uniform(0, 3))
    cluster.net.slow(node.name, cluster.rng.uniform(0.35, 0.48))
    cluster.trace.note(f"{node.name} is far away")
    node.start()
    await cluster.await_serving([node])
    await await_progress(cluster)
    await cluster.finish(partitions)


@scenario()
async def divergence(cluster: SimCluster) -> None:
    """A leader that is cut off takes records that nobody else has (acks=1); it drops them when it follows again.

    With leaders that change quickly, logs part in more than one epoch (KIP-101, KIP-279, KIP-320).
    """
    partitions = await begin(cluster, partitions=1)
    tp = partitions[0]
    cluster.produce(partitions, 0.1, acks=1)
    for _ in range(cluster.rng.randint(2, 4)):
        leader = await cluster.await_leader(tp)
        isolate(cluster, leader)
        await cluster.run_for(cluster.rng.uniform(0.5, 15))
        if cluster.rng.random() < 0.4:
            leader.kill()
            cluster.net.heal()
            await cluster.run_for(cluster.rng.uniform(0, 3))
            leader.start()
        cluster.net.heal()
        cluster.trace.note("healed")
        await cluster.run_for(cluster.rng.uniform(0, 3))
    await cluster.finish(partitions)


@scenario(metadata_max_idle_interval_ms="500")
async def idle_controller(cluster: SimCluster) -> None:
    """The controller writes records where nothing happens; one that is cut off from all leads no more (KIP-835)."""
    partitions = await begin(cluster)
    for _ in range(2):
        before = {node.id: _metadata_offset(node) for node in cluster.serving}
        await cluster.until(
            lambda before=before: all(  # type: ignore[misc]
                _metadata_offset(node) >= before.get(node.id, 0) + 4 for node in cluster.serving
            ),
            30,
            "the metadata of nodes does not advance",
        )
        old = await cluster.await_controller()
        others = [name for name in cluster.names if name != old.name]
        cluster.net.cut_both_ways([old.name], others)
        cluster.trace.note(f"{old.name} is cut off")
        broker = old.broker
        assert broker is not None
        await cluster.until(lambda broker=broker: not broker.metadata.is_leader, 30, f"{old.name} leads on")  # type: ignore[misc]
        alone = _metadata_offset(old)
        await cluster.run_for(cluster.rng.uniform(1, 10))
        if _metadata_offset(old) != alone:
            raise Violation(f"{old.name} has metadata that no majority has")
        cluster.net.heal()
        cluster.trace.note("healed")
        await await_progress(cluster)
    await cluster.finish(partitions)


def _metadata_offset(node: SimNode) -> int:
    """The offset up to which a node has the metadata."""
    return -1 if node.broker is None else node.broker.metadata.image.offset
