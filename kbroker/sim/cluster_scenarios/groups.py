"""Groups whose members and coordinators come and go."""

from __future__ import annotations

from kbroker.sim.cluster import SimCluster
from kbroker.sim.cluster_scenarios.registry import scenario
from kbroker.sim.cluster_scenarios.steps import TOPIC, begin, some_chaos
from kbroker.sim.group_clients import SimGroupMember


@scenario()
async def consumer_groups(cluster: SimCluster) -> None:
    """Members of a group join, leave and die while brokers do: one owner for each partition, and commits that stay."""
    await _members_come_and_go(cluster, classic=0.0)


@scenario()
async def classic_groups(cluster: SimCluster) -> None:
    """The same with the classic protocol: in a generation each partition is given to one member."""
    await _members_come_and_go(cluster, classic=1.0)


@scenario()
async def mixed_groups(cluster: SimCluster) -> None:
    """Members of both protocols in one group, which changes to and fro (KIP-848's migration)."""
    await _members_come_and_go(cluster, classic=0.5)


async def _members_come_and_go(cluster: SimCluster, *, classic: float) -> None:
    """``classic`` is the share of the members that use the classic protocol."""
    partitions = await begin(cluster, partitions=6, producers=1, interval=1.0)
    rng = cluster.rng
    instances = (f"instance-{number}" for number in range(9))

    def join(instance_id: str | None = None) -> None:
        is_classic = rng.random() < classic
        if instance_id is None and rng.random() < 0.4:
            instance_id = next(instances)
        members.append(cluster.join_group("group", TOPIC, 6, classic=is_classic, instance_id=instance_id))

    members: list[SimGroupMember] = []
    join()
    join()
    for _ in range(3):
        await some_chaos(cluster, 2)
        if rng.random() < 0.5:
            join()
        if len(members) > 1 and rng.random() < 0.7:
            member = members.pop(rng.randrange(len(members)))
            if rng.random() < 0.5:
                member.crash()
            else:
                await member.leave()
            if member.instance_id is not None:
                join(member.instance_id)  # it is started again
    await cluster.finish(partitions)
