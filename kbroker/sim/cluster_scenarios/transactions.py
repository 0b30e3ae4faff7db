"""Transactions under failures."""

from __future__ import annotations

from typing import Final

from kbroker.sim.cluster import SimCluster
from kbroker.sim.cluster_scenarios.registry import scenario
from kbroker.sim.cluster_scenarios.steps import await_progress, begin_transactions, some_chaos
from kbroker.types import TopicPartition

COPY: Final = "copy"
SINGLE: Final = "single"


@scenario()
async def transactions(cluster: SimCluster) -> None:
    """Leaders and coordinators die, stop and stand still while transactions and offsets are committed."""
    partitions = await begin_transactions(cluster)
    await some_chaos(cluster, 8)
    await cluster.finish(partitions)


@scenario()
async def many_partitions(cluster: SimCluster) -> None:
    """Transactions of many partitions, replicated or not, while leaders and coordinators are killed and moved."""
    partitions = await begin_transactions(cluster, partitions=9, versions=(2, 2, 1))
    client = cluster.client()
    await client.create_topic(SINGLE, 3, 1)
    client.close()
    single = [TopicPartition(SINGLE, index) for index in range(3)]
    cluster.consume(single, read_committed=True)
    cluster.transact(partitions + single, versions=(2, 1))
    for _ in range(4):
        await await_progress(cluster, 60)
        node = cluster.rng.choice(list(cluster.nodes.values()))
        if cluster.rng.random() < 0.5:
            node.kill()
        else:
            await node.stop()
        await cluster.run_for(cluster.rng.choice((0.1, 1, 3)))
        await cluster.heal()
    await cluster.finish(partitions + single)


@scenario()
async def late_requests(cluster: SimCluster) -> None:
    """Requests of transactions come late and twice while coordinators die (KAFKA-17754): version 2 takes no harm."""
    await late_requests_with(cluster, (2, 2, 2))


async def late_requests_with(cluster: SimCluster, versions: tuple[int, ...]) -> None:
    """The course of ``cluster-late-requests``, with producers of any version. Version 1 does take harm."""
    partitions = await begin_transactions(cluster, versions=versions, late=0.2)
    for _ in range(2):
        await some_chaos(cluster, 2)
        await cluster.heal()
        await await_progress(cluster, 20)
    await cluster.finish(partitions)


@scenario()
async def exactly_once(cluster: SimCluster) -> None:
    """Partitions are copied in transactions that commit offsets, too, while copiers and brokers die."""
    partitions = await begin_transactions(cluster)
    client = cluster.client()
    await client.create_topic(COPY, len(partitions), 3, {"min.insync.replicas": "2"})
    client.close()
    targets = [TopicPartition(COPY, tp.partition) for tp in partitions]
    cluster.consume(targets, read_committed=True)
    copiers = [
        cluster.copy(source, target, version=version, late=0.1 if version == 2 else 0.0)
        for source, target, version in zip(partitions, targets, (2, 1), strict=True)
    ]
    for _ in range(3):
        await some_chaos(cluster, 2)
        if cluster.rng.random() < 0.7:
            cluster.rng.choice(copiers).crash()
        await cluster.heal()
        for copier in copiers:
            goal = copier.commits + 2
            await cluster.until(lambda copier=copier, goal=goal: copier.commits >= goal, 45, "a copier gets nowhere")  # type: ignore[misc]
    await cluster.finish(partitions + targets)
