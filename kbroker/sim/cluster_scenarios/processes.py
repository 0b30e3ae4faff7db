"""Processes that are killed, stopped, paused, and machines that lose their power."""

from __future__ import annotations

from math import inf

from kbroker.sim.cluster import SimCluster
from kbroker.sim.cluster_scenarios.registry import scenario
from kbroker.sim.cluster_scenarios.steps import (
    TOPIC,
    await_progress,
    begin,
    end_and_start_one,
    kill_all,
    some_chaos,
    start_recovering,
)
from kbroker.sim.sim_node import OFFSETS_PARTITIONS
from kbroker.sim.transaction_clients import OFFSETS_TOPIC
from kbroker.sim.world import Violation


@scenario()
async def steady(cluster: SimCluster) -> None:
    """Nothing happens for a minute."""
    partitions = await begin(cluster)
    await cluster.run_for(60)
    await cluster.finish(partitions)


@scenario(quiet=True)
async def prompt(cluster: SimCluster) -> None:
    """Nothing happens, and much comes at the same moment: no answer takes longer than the network and the disks do."""
    partitions = await begin(cluster, producers=1, read_committed=True)
    cluster.net.faults.tick = cluster.rng.choice((0.0005, 0.001, 0.002))
    cluster.transact(partitions, 0.01, versions=(2, 1, 1))
    cluster.commit_offsets(partitions[0], 2)
    for _ in range(2):
        cluster.join_group("group", TOPIC, len(partitions))
    await cluster.run_for(2)
    cluster.promptness.expect(0.1)
    before = dict(cluster.history.refusals)
    await cluster.run_for(2)
    if cluster.history.refusals != before:
        raise Violation(f"nothing was wrong, and producers were refused: {cluster.history.refusals}")
    cluster.promptness.expect(inf)
    await cluster.finish(partitions)


@scenario()
async def one_replica(cluster: SimCluster) -> None:
    """Partitions without followers, on nodes that are killed and stopped: what was written is there again after."""
    partitions = await begin(cluster, partitions=3, replication_factor=1, min_isr=1)
    for _ in range(4):
        await end_and_start_one(cluster, killed=0.6, down=8)
    await cluster.finish(partitions)


@scenario(nodes=1, log_flush_interval_messages="1")
async def alone_without_power(cluster: SimCluster) -> None:
    """A node that is alone, and flushes each record, loses its power: transactions and offsets are there again, too."""
    partitions = await begin(cluster, replication_factor=1, min_isr=1, producers=1, read_committed=True)
    cluster.transact(partitions, versions=(2, 1))
    cluster.commit_offsets(partitions[0], 2)
    (node,) = cluster.nodes.values()
    for _ in range(4):
        await await_progress(cluster)
        await cluster.run_for(cluster.rng.uniform(0, 5))
        node.crash()
        await cluster.run_for(cluster.rng.choice((0.1, 1, 10)))
        node.start()
        await cluster.await_serving()
    await cluster.finish(partitions)


@scenario()
async def leader_killed(cluster: SimCluster) -> None:
    """A partition's leader is killed, again and again; another replica leads, and the old one comes back."""
    partitions = await begin(cluster)
    for _ in range(4):
        leader = await cluster.await_leader(partitions[0])
        leader.kill()
        await cluster.await_leader(partitions[0], other_than=leader.id)
        await await_progress(cluster)
        await cluster.run_for(cluster.rng.uniform(0, 5))
        leader.start()
        await cluster.await_serving([leader])
        if cluster.rng.random() < 0.5:
            await cluster.await_full_isr(partitions)
    await cluster.finish(partitions)


@scenario()
async def five_in_flight(cluster: SimCluster) -> None:
    """Idempotent producers have five requests under way and lose answers, while leaders are killed and moved."""
    partitions = await begin(cluster, producers=1)
    for tp in partitions:
        cluster.pipeline(tp, overtakes=tp.partition % 2 == 1)
    for _ in range(4):
        leader = await cluster.await_leader(cluster.rng.choice(partitions))
        if cluster.rng.random() < 0.5:
            leader.kill()
        else:
            await leader.stop()
        await await_progress(cluster, 250)
        leader.start()
        await cluster.await_serving([leader])
        await await_progress(cluster, 250)
    await cluster.finish(partitions)


@scenario()
async def leader_loses_power(cluster: SimCluster) -> None:
    """A leader's machine fails, and what it had not flushed is gone; it may be back before anybody has noticed."""
    partitions = await begin(cluster)
    for _ in range(3):
        await cluster.await_full_isr(partitions)
        leader = await cluster.await_leader(cluster.rng.choice(partitions))
        leader.crash()
        await cluster.run_for(cluster.rng.choice((0.05, 1.0, 5.0, 15.0)))
        leader.start()
        await cluster.await_serving([leader])
        await await_progress(cluster)
    await cluster.finish(partitions)


@scenario(broker_session_timeout_ms="9000")
async def leader_back_at_once(cluster: SimCluster) -> None:
    """A leader loses all that it had not flushed, and is back before anybody has missed it: it must not lead on."""
    partitions = await begin(cluster, interval=0.02, producers=6)
    for _ in range(3):
        await cluster.await_full_isr(partitions)
        leader = await cluster.await_leader(cluster.rng.choice(partitions))
        leader.crash(lose_all=True)
        await cluster.run_for(cluster.rng.uniform(0.02, 0.3))
        for name in cluster.rng.sample(cluster.names, cluster.rng.randint(1, 3)):
            cluster.net.slow(name, cluster.rng.uniform(0.05, 0.2))  # who learns late what has been decided
        leader.start()
        await cluster.await_serving([leader])
        cluster.net.heal()
        await await_progress(cluster, 20)
    await cluster.finish(partitions)


@scenario()
async def all_killed(cluster: SimCluster) -> None:
    """All processes are killed at about the same time, and start again in any order."""
    partitions = await begin(cluster)
    for _ in range(2):
        await cluster.await_full_isr(partitions)
        order = await kill_all(cluster)
        cluster.rng.shuffle(order)
        for node in order:
            await cluster.run_for(cluster.rng.choice((0, 0.1, 2)))
            node.start()
        await cluster.await_serving()
        await await_progress(cluster)
    await cluster.finish(partitions)


@scenario(
    log_cleaner_backoff_ms="500", log_cleaner_min_cleanable_ratio="0.01", log_flush_offset_checkpoint_interval_ms="5000"
)
async def checkpoints_lost(cluster: SimCluster) -> None:
    """Processes are killed, or stopped, and checkpoint files are lost: compacted logs, full of holes, keep all."""
    partitions = await begin(cluster)
    client = cluster.client()
    small = {"cleanup.policy": "compact", "internal.segment.bytes": "400"}
    await client.create_topic(OFFSETS_TOPIC, OFFSETS_PARTITIONS, 3, small)
    client.close()
    cluster.commit_offsets(partitions[0], 6)
    for _ in range(3):
        await cluster.run_for(cluster.rng.uniform(10, 40))
        await await_progress(cluster)
        if cluster.rng.random() < 0.5:
            await cluster.await_full_isr(partitions)
            gone = await kill_all(cluster)
        else:
            gone = [cluster.rng.choice(cluster.serving)]
            if cluster.rng.random() < 0.3:
                await gone[0].stop()
            else:
                gone[0].kill()
        for node in gone:
            node.spoil_checkpoints()
            node.start()
        await cluster.await_serving()
    await cluster.finish(partitions)
    for node in cluster.nodes.values():
        aside = node.set_aside()
        if aside:
            raise Violation(f"{node.name} has taken for damage what was none: {aside}")


@scenario()
async def slow_recovery(cluster: SimCluster) -> None:
    """All are killed, and two open their logs a minute later: with their controllers the third serves meanwhile."""
    partitions = await begin(cluster, min_isr=1)
    for _ in range(2):
        await cluster.await_full_isr(partitions)
        order = await kill_all(cluster)
        quick, *slow = order
        for node in slow:
            await start_recovering(cluster, node, cluster.rng.uniform(30, 90))
        quick.start()
        await cluster.await_serving([quick], within=25)
        await cluster.run_for(cluster.rng.uniform(0, 20))
        again = cluster.rng.choice((None, *slow))
        if again is not None and again.broker is None:
            if cluster.rng.random() < 0.5:
                again.kill()
            else:
                await again.stop()
            again.start()
        await cluster.await_serving(within=120)
        await await_progress(cluster)
    await cluster.finish(partitions)


@scenario()
async def rolling_restarts(cluster: SimCluster) -> None:
    """Nodes are stopped in good order and started again, one after the other."""
    partitions = await begin(cluster)
    for _ in range(2):
        for node in list(cluster.nodes.values()):
            await cluster.await_full_isr(partitions)
            await node.stop()
            await cluster.run_for(cluster.rng.uniform(0, 3))
            node.start()
            await cluster.await_serving([node])
            await await_progress(cluster)
    await cluster.finish(partitions)


@scenario()
async def leader_paused(cluster: SimCluster) -> None:
    """A leader stands still for 5, 20 or 60 seconds and goes on as if nothing had been: its epoch is over."""
    partitions = await begin(cluster)
    for seconds in (5, cluster.rng.choice((20, 60))):
        leader = await cluster.await_leader(partitions[0])
        leader.pause()
        await cluster.run_for(seconds)
        leader.resume()
        await await_progress(cluster)
    await cluster.finish(partitions)


@scenario()
async def chaos(cluster: SimCluster) -> None:
    """Nodes are killed, stopped, paused, cut off, slow and without power, in any order."""
    partitions = await begin(cluster)
    await some_chaos(cluster, 12)
    await cluster.finish(partitions)
