"""Share groups (KIP-932) whose members, leaders and coordinators come and go."""

from __future__ import annotations

from typing import Final

from kbroker.sim.cluster import SimCluster
from kbroker.sim.cluster_scenarios.registry import scenario
from kbroker.sim.cluster_scenarios.steps import await_progress, begin, isolate, some_chaos
from kbroker.sim.share_groups import STATE_TOPIC, SimShareGroup
from kbroker.types import TopicPartition

_PROPERTIES: Final = {
    "share.coordinator.state.topic.num.partitions": "2",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "4000",
    "group.share.initialize.retry.interval.ms": "2000",
}

_PRUNED: Final = {
    "share.coordinator.snapshot.update.records.per.snapshot": "10",
    "share.coordinator.cold.partition.snapshot.interval.ms": "3000",
    "share.coordinator.state.topic.prune.interval.ms": "4000",
}
"""Snapshots, and deletion of what they replace, so often that they happen between all other events."""

_GATHERED: Final = {"share.coordinator.append.linger.ms": "20"}
"""Changes of several share partitions are written together."""


@scenario(base=_PROPERTIES)
async def share_groups(cluster: SimCluster) -> None:
    """Members of a share group come and go while brokers do: each record is done with once, and none is lost."""
    group, partitions = await _begin(cluster)
    rng = cluster.rng
    members = [group.join()]
    for _ in range(2):
        await some_chaos(cluster, 2)
        if rng.random() < 0.6:
            members.append(group.join())
        if len(members) > 1 and rng.random() < 0.6:
            member = members.pop(rng.randrange(len(members)))
            if rng.random() < 0.5:
                member.crash()
            else:
                await member.leave()
    await cluster.finish(partitions)
    await group.finish()


@scenario(base={**_PROPERTIES, **_PRUNED, **_GATHERED})
async def share_coordinators(cluster: SimCluster) -> None:
    """The share coordinator, or a leader whose states it keeps, is killed, stopped, paused or cut off."""
    group, partitions = await _begin(cluster)
    rng = cluster.rng
    states = [tp for tp in cluster.all_partitions() if tp.topic == STATE_TOPIC]
    for _ in range(3):
        node = await cluster.await_leader(rng.choice((*states, *states, *partitions)))
        what = rng.choice(("kill", "stop", "pause", "isolate"))
        if what == "kill":
            node.kill()
        elif what == "stop":
            await node.stop()
        elif what == "pause":
            node.pause()
        else:
            isolate(cluster, node)
        await cluster.run_for(rng.choice((0.1, 1, 6, 12)))
        await cluster.heal()
        await await_progress(cluster)
        await cluster.run_for(rng.uniform(0, 3))
    await cluster.finish(partitions)
    await group.finish()


@scenario(base=_PROPERTIES)
async def share_slow_disk(cluster: SimCluster) -> None:
    """The disk of a share coordinator, or of a leader, takes 0.1 to 10 s for a flush: locks end meanwhile."""
    group, partitions = await _begin(cluster)
    rng = cluster.rng
    states = [tp for tp in cluster.all_partitions() if tp.topic == STATE_TOPIC]
    for _ in range(2):
        node = await cluster.await_leader(rng.choice((*states, *partitions)))
        node.machine.disk_latency = rng.choice((0.1, 1, 3, 10))
        cluster.trace.note(f"{node.name} has a slow disk")
        await cluster.run_for(rng.choice((2, 8, 15)))
        node.machine.disk_latency = 0.001
        await await_progress(cluster)
    await cluster.finish(partitions)
    await group.finish()


@scenario(base=_PROPERTIES)
async def share_dead_letters(cluster: SimCluster) -> None:
    """Each record that a group gives up has a letter in a dead-letter topic, whose leader dies, too."""
    letters = TopicPartition("dlq.letters", 0)
    group, partitions = await _begin(cluster, letters)
    rng = cluster.rng
    states = [tp for tp in cluster.all_partitions() if tp.topic == STATE_TOPIC]
    for _ in range(4):
        node = await cluster.await_leader(rng.choice((letters, letters, *states, *partitions)))
        if rng.random() < 0.6:
            node.kill()
        else:
            await node.stop()
        await cluster.run_for(rng.choice((0.1, 1, 5)))
        node.start()
        await cluster.await_serving([node])
        await await_progress(cluster, 3)
    await cluster.finish(partitions)
    await group.finish()


async def _begin(
    cluster: SimCluster, dead_letters: TopicPartition | None = None
) -> tuple[SimShareGroup, list[TopicPartition]]:
    """Have records produced, and a group that has been given some."""
    partitions = await begin(cluster, partitions=2, producers=1, interval=0.4)
    group = SimShareGroup(cluster, "workers", partitions, dead_letters=dead_letters)
    await group.begin()
    for _ in range(2):
        group.join()
    given = group.history.outcomes
    await cluster.until(lambda: given["GIVEN"] >= 10, 60, "members are given nothing")
    return group, partitions
