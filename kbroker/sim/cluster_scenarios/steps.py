"""Steps that several scenarios take: the beginning, the waiting for progress, and common troubles.

A node whose machine loses its power loses unflushed records. As with Apache Kafka, only one replica may do so at a
time: acknowledged records are safe because other machines have them. A process that is killed loses nothing that it
wrote.
"""

from __future__ import annotations

from typing import Final

from kbroker.sim.cluster import SimCluster
from kbroker.sim.sim_node import SimNode
from kbroker.types import TopicPartition

TOPIC: Final = "topic"


async def begin(
    cluster: SimCluster,
    *,
    partitions: int = 2,
    replication_factor: int = 3,
    min_isr: int = 2,
    producers: int = 2,
    assignments: dict[int, list[int]] | None = None,
    interval: float = 0.25,
    read_committed: bool = False,
) -> list[TopicPartition]:
    """Start everything, create a topic, and have clients produce and consume."""
    for node in cluster.nodes.values():
        node.start()
        await cluster.run_for(cluster.rng.choice((0, 0, 0.5)))
    await cluster.await_serving()
    client = cluster.client()
    configs = {"min.insync.replicas": str(min_isr)}
    await client.create_topic(TOPIC, partitions, replication_factor, configs, assignments)
    client.close()
    found = [TopicPartition(TOPIC, index) for index in range(len(assignments) if assignments else partitions)]
    cluster.produce(found, interval, producers)
    cluster.consume(found, read_committed=read_committed)
    await await_progress(cluster, 5)
    return found


async def begin_transactions(
    cluster: SimCluster, *, partitions: int = 2, versions: tuple[int, ...] = (2, 1), late: float = 0.0
) -> list[TopicPartition]:
    """:func:`begin` with transactions and committed offsets; consumers read committed records only.

    ``versions`` are those of the producers' transactions, and ``late`` is the share of their requests that come twice.
    """
    found = await begin(cluster, partitions=partitions, producers=1, read_committed=True)
    cluster.transact(found, versions=versions, late=late)
    cluster.commit_offsets(found[0], 2)
    await await_progress(cluster, 10)
    return found


async def await_progress(cluster: SimCluster, count: int = 10, within: float = 60.0) -> None:
    """Until this many more records are acknowledged."""
    goal = cluster.history.acknowledgements + count
    await cluster.until(lambda: cluster.history.acknowledgements >= goal, within, "producers get nowhere")


async def end_and_start_one(cluster: SimCluster, *, killed: float, down: float) -> None:
    """End some node, ``killed`` of the times by a kill, and start it again within ``down`` seconds; clients go on."""
    node = cluster.rng.choice(cluster.serving)
    if cluster.rng.random() < killed:
        node.kill()
    else:
        await node.stop()
    await cluster.run_for(cluster.rng.uniform(0, down))
    node.start()
    await cluster.await_serving([node])
    await await_progress(cluster)


async def kill_all(cluster: SimCluster) -> list[SimNode]:
    """Kill all processes at about the same time; the nodes in this order."""
    order = list(cluster.nodes.values())
    cluster.rng.shuffle(order)
    for node in order:
        node.kill()
        await cluster.run_for(cluster.rng.choice((0, 0, 0.05, 1)))
    return order


async def start_recovering(cluster: SimCluster, node: SimNode, seconds: float) -> None:
    """Start a node that verifies its logs for so long, beside all else that it does."""
    cluster.trace.note(f"{node.name} verifies its logs for {seconds:.0f} s")
    node.machine.opening_seconds = seconds
    node.start()
    node.machine.opening_seconds = 0.0


def isolate(cluster: SimCluster, node: SimNode) -> bool:
    """Cut a node off from the other nodes, and say whether both ways; clients still reach it, now and then only it."""
    others = [name for name in cluster.names if name != node.name]
    how = cluster.rng.random()
    if how < 0.5:
        cluster.net.cut_both_ways([node.name], others)
    elif how < 0.75:
        cluster.net.cut([node.name], others)
    else:
        cluster.net.cut(others, [node.name])
    cluster.trace.note(f"{node.name} is cut off {'both ways' if how < 0.5 else 'one way'}")
    return how < 0.5


async def some_chaos(cluster: SimCluster, rounds: int) -> None:
    """Nodes are killed, stopped, paused, cut off and slow; the next trouble may come before the last is over."""
    rng = cluster.rng
    for _ in range(rounds):
        node = rng.choice(list(cluster.nodes.values()))
        what = rng.choice(("kill", "kill", "stop", "pause", "isolate", "isolate", "slow", "power"))
        if what == "power":
            # Nobody else may lack anything that this machine is about to lose.
            await cluster.heal()
            await cluster.await_full_isr(cluster.all_partitions())
            node.crash()
            await cluster.run_for(rng.choice((0.1, 1, 3, 10)))
            node.start()
            await cluster.await_serving()
            await cluster.await_full_isr(cluster.all_partitions())
            continue
        if what == "pause":
            if node.running:
                node.pause()
        elif what == "isolate":
            isolate(cluster, node)
        elif what == "slow":
            cluster.net.slow(node.name, rng.uniform(0.1, 2))
            cluster.trace.note(f"{node.name} is slow")
        elif node.broker is not None and not cluster.pauser.is_paused(node.id):
            if what == "kill":
                node.kill()
            else:
                await node.stop()
        await cluster.run_for(rng.choice((0.1, 1, 3, 10)))
        if rng.random() < 0.7:
            await cluster.heal()
            await cluster.run_for(rng.choice((0, 0.5, 3)))
