"""Disks that fail, are slow or damage what they hold, and clocks that jump."""

from __future__ import annotations

from typing import Final

import trio

from kbroker.log.checkpoint_files import PARTITION_METADATA
from kbroker.log.file_names import LOG_SUFFIX, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX
from kbroker.log.leader_epochs import FILE_NAME as LEADER_EPOCHS
from kbroker.raft_metadata.raft.election_state import FILE_NAME as QUORUM_STATE
from kbroker.sim.cluster import SimCluster
from kbroker.sim.cluster_scenarios.registry import scenario
from kbroker.sim.cluster_scenarios.steps import await_progress, begin, begin_transactions, kill_all, some_chaos
from kbroker.sim.sim_env import DATA_DIR, SECOND_DIR
from kbroker.sim.sim_node import SimNode
from kbroker.sim.world import Violation
from kbroker.types import METADATA_TOPIC
from kbroker.wire.messages.log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic

OF_A_LOG: Final = (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, LEADER_EPOCHS, PARTITION_METADATA, ".checkpoint", QUORUM_STATE)


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


@scenario(log_dirs=f"{DATA_DIR},{SECOND_DIR}")
async def moves_between_disks(cluster: SimCluster) -> None:
    """Logs move between the two disks of their nodes all the time, while nodes are killed, lose their power, stop and
    stand still, and transactions go on."""
    partitions = await begin_transactions(cluster, partitions=3, versions=(2, 2, 2))
    cluster.pipeline(partitions[0])
    client, rng = cluster.client(), cluster.rng

    async def move() -> None:
        while not cluster.producers[0].stopped:
            await trio.sleep(rng.uniform(0.05, 1.0))
            node, tp = rng.choice(cluster.brokers), rng.choice(cluster.all_partitions())
            wanted = AlterReplicaLogDirTopic(name=tp.topic, partitions=[tp.partition])
            directory = AlterReplicaLogDir(path=rng.choice((DATA_DIR, SECOND_DIR)), topics=[wanted])
            if node.running:
                await client.ask(node.id, AlterReplicaLogDirsRequest(dirs=[directory]), timeout=5.0)

    cluster.run_client(move)
    for _ in range(2):
        await some_chaos(cluster, 3)
        await cluster.heal()
        await await_progress(cluster, 20)
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


@scenario(log_roll_ms="2000", replica_high_watermark_checkpoint_interval_ms="500")
async def bad_disks(cluster: SimCluster) -> None:
    """Disks flip bits, lose blocks and answer with others, of one replica at a time: it heals, and nothing is lost."""
    rng = cluster.rng
    partitions = await begin(cluster, partitions=3)
    cluster.commit_offsets(partitions[0], 2)
    for _ in range(3):
        await cluster.run_for(rng.uniform(2, 8))
        await await_progress(cluster)
        everything = cluster.all_partitions()
        await cluster.await_full_isr(everything)
        # Two of three replicas are damaged, but in different partitions.
        victims = rng.sample(cluster.brokers, rng.choice((1, 1, 2)))
        how = rng.choice(("runs", "stops", "is killed", "all are killed", "all are killed"))
        names = [*map(str, everything), *(() if how == "runs" else (f"{METADATA_TOPIC}-0",))]
        rng.shuffle(names)
        if how == "all are killed":
            await kill_all(cluster)
        for number, node in enumerate(victims):
            if how == "stops":
                await node.stop()
            elif how == "is killed":
                node.kill()
            suffixes = [LOG_SUFFIX] if how == "runs" or rng.random() < 0.6 else OF_A_LOG
            node.damage(names[number :: len(victims)], suffixes)
        await cluster.run_for(rng.choice((0, 1, 5)))
        cluster.start_all()
        await cluster.await_serving()
        await _until_healed(cluster)
        await await_progress(cluster)
    await cluster.finish(partitions)


@scenario(nodes=4, cores=2, log_roll_ms="2000", replica_high_watermark_checkpoint_interval_ms="500")
async def hand_overs_of_damage(cluster: SimCluster) -> None:
    """Logs are handed over that their disk has damaged, found or not: they heal from the other machine's replica."""
    rng = cluster.rng
    partitions = await begin(cluster, assignments={0: [1, 3], 1: [4, 2], 2: [2, 4]}, min_isr=1)
    client = cluster.client()
    for _ in range(4):
        await cluster.run_for(rng.uniform(2, 8))
        await cluster.await_full_isr(partitions)
        first = rng.choice((1, 3))  # both nodes have one disk
        for node in (cluster.nodes[first], cluster.nodes[first + 1]):
            node.damage([str(tp) for tp in partitions if rng.random() < 0.7], [LOG_SUFFIX])
        for tp in partitions:
            assigned = cluster.partition(tp)
            replicas = () if assigned is None else assigned.replicas
            wanted = [2 * first + 1 - each if each in (first, first + 1) else each for each in replicas]
            await client.reassign(tp, wanted)
        await cluster.run_for(rng.choice((0, 1, 5)))
        for node in cluster.brokers:
            await _scrub(cluster, node)
        await cluster.await_full_isr(partitions)
        await _until_healed(cluster)  # the first rounds leave out logs that have come meanwhile
        await await_progress(cluster)
    if not sum(node.machine.links for node in cluster.brokers):
        raise Violation("no log was handed over")
    await cluster.finish(partitions)


async def _until_healed(cluster: SimCluster) -> None:
    """All is verified, and what is damaged is whole again, within two minutes."""
    for node in cluster.brokers:
        await _scrub(cluster, node)
    await cluster.until(lambda: not _damaged(cluster), 60, "what is damaged does not heal")
    await cluster.await_full_isr(cluster.all_partitions(), within=60)
    cluster.invariants.check_logs()


async def _scrub(cluster: SimCluster, node: SimNode) -> None:
    """Have a node verify its logs now."""

    def ended() -> list[int]:
        scrubber = None if node.broker is None else node.broker.log_care.scrubber
        return [] if scrubber is None else [each.ended_ms for each in scrubber.progress.values()]

    await cluster.until(lambda: any(ended()), 20, f"{node.name} does not begin to verify its logs")
    before = ended()
    assert node.broker is not None and node.broker.log_care.scrubber is not None
    node.broker.log_care.scrubber.begin()
    await cluster.until(lambda: min(ended(), default=0) > max(before), 60, f"{node.name} does not verify its logs")


def _damaged(cluster: SimCluster) -> list[str]:
    """The logs that know of damage."""
    return [
        f"{node.name} {log.topic_partition}"
        for node in cluster.serving
        if node.broker is not None
        for log in node.broker.log_manager
        if log.is_damaged
    ]
