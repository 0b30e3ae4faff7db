"""Disks that fail or are slow, and clocks that jump."""

from __future__ import annotations

from kbroker.sim.cluster import SimCluster
from kbroker.sim.cluster_scenarios.registry import scenario
from kbroker.sim.cluster_scenarios.steps import await_progress, begin, begin_transactions
from kbroker.sim.sim_env import DATA_DIR, SECOND_DIR
from kbroker.sim.world import Violation


@scenario()
async def disk_fails(cluster: SimCluster) -> None:
    """A leader's disk refuses to flush or to write: it is not trusted again, and the other replicas serve on."""
    partitions = await begin(cluster)
    await cluster.await_full_isr(partitions)
    leader = await cluster.await_leader(partitions[0])
    leader.machine.failing = cluster.rng.choice(("sync", "write"))
    cluster.trace.note(f"{leader.name}'s disk fails to {leader.machine.failing}")
    await cluster.run_for(cluster.rng.uniform(0, 3))
    await await_progress(cluster, 20)
    await cluster.run_for(cluster.rng.uniform(0, 10))
    await cluster.finish(partitions)


@scenario()
async def disk_fills(cluster: SimCluster) -> None:
    """A leader's disk runs full: others lead. It lives on, may be started anew, and follows when there is room."""
    partitions = await begin(cluster)
    await cluster.await_full_isr(partitions)
    leader = await cluster.await_leader(partitions[0])
    for _ in range(2):
        disk = leader.machine.disk
        disk.capacity = 1 << 30
        disk.taken = disk.capacity - disk.used() - cluster.rng.randrange(5_000)
        cluster.trace.note(f"{leader.name}'s disk is full")
        await cluster.run_for(cluster.rng.uniform(0, 3))
        if cluster.rng.random() < 0.5:
            leader.kill()
            await cluster.run_for(cluster.rng.uniform(0, 3))
            leader.start()
            await cluster.await_serving([leader])
        await await_progress(cluster, 20)
        await cluster.run_for(cluster.rng.uniform(0, 10))
        if leader.broker is None:
            raise Violation(f"{leader.name} is gone, because its disk is full: {cluster.describe()}")
        leader.machine.disk.capacity, leader.machine.disk.taken = None, 0
        cluster.trace.note(f"{leader.name}'s disk has room again")
        await cluster.await_full_isr(partitions)
    await cluster.finish(partitions)


@scenario()
async def slow_disk(cluster: SimCluster) -> None:
    """A node's disk takes 0.1 to 30 s for each flush, and then is quick again: the cluster goes on all the while."""
    partitions = await begin(cluster)
    await cluster.await_full_isr(partitions)
    node = await cluster.await_leader(partitions[0])
    node.machine.disk_latency = cluster.rng.choice((0.1, 1.0, 10.0, 30.0))
    cluster.trace.note(f"{node.name}'s disk takes {node.machine.disk_latency} s")
    await await_progress(cluster, 20, within=120)
    await cluster.run_for(cluster.rng.uniform(0, 60))
    await await_progress(cluster, 20, within=120)
    await cluster.finish(partitions)


@scenario(log_dirs=f"{DATA_DIR},{SECOND_DIR}")
async def one_of_two_disks_fails(cluster: SimCluster) -> None:
    """A node's second log directory fails: what it holds is led elsewhere, what the first holds goes on."""
    partitions = await begin(cluster, partitions=4)
    await cluster.await_full_isr(partitions)
    node = await cluster.await_leader(partitions[0])
    node.machine.failing = cluster.rng.choice(("sync", "write"))
    node.machine.failing_below = SECOND_DIR
    cluster.trace.note(f"{node.name}'s second disk fails to {node.machine.failing}")
    await await_progress(cluster, 40)
    await cluster.run_for(cluster.rng.uniform(0, 10))
    if node.broker is None:
        raise Violation(f"{node.name} is gone, with a disk that works: {cluster.describe()}")
    await cluster.finish(partitions)


@scenario()
async def clocks_jump(cluster: SimCluster) -> None:
    """Wall clocks are set half an hour back and up to a day forward: nothing expires early, and nobody is fenced."""
    partitions = await begin_transactions(cluster)
    for _ in range(4):
        node = cluster.rng.choice(list(cluster.nodes.values()))
        node.machine.skew_ms = cluster.rng.choice((-1_800_000, 0, 3_600_000, 86_400_000))
        cluster.trace.note(f"{node.name}'s clock is {node.machine.skew_ms} ms ahead")
        await cluster.run_for(cluster.rng.uniform(1, 8))
        await await_progress(cluster, 3)
    await cluster.finish(partitions)
