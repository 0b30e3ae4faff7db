"""What happens to a simulated cluster. Each scenario leaves it healed, and what was promised kept.

Who crashes with the power of its machine loses what was not flushed, so, as with Apache Kafka, only one replica may do
so at a time: acknowledged records are safe because other machines have them. A process that is killed loses nothing
that it wrote.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TextIO

from kbroker.errors import ErrorCode
from kbroker.sim.clock import Trace, run_deterministically
from kbroker.sim.cluster import SimCluster, simulated_cluster
from kbroker.sim.group_clients import GroupMember
from kbroker.sim.history import Violation
from kbroker.sim.sim_env import DATA_DIR, SECOND_DIR
from kbroker.sim.sim_node import SimNode
from kbroker.sim.streams import LinkFaults
from kbroker.types import TopicPartition

TOPIC = "topic"
COPY = "copy"

Course = Callable[[SimCluster], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ClusterScenario:
    """A course of events, and the cluster that it needs."""

    course: Course
    nodes: int = 3
    controllers: int = 0
    """Nodes besides that only vote; without any, every node does both."""
    properties: Mapping[str, str] = field(default_factory=dict)
    quiet: bool = False
    """Whether the network is always a good one."""


CLUSTER_SCENARIOS: dict[str, ClusterScenario] = {}


def scenario(
    *, nodes: int = 3, controllers: int = 0, quiet: bool = False, **properties: str
) -> Callable[[Course], Course]:
    """Enter a course of events under its name; properties with underscores for dots."""

    def enter(course: Course) -> Course:
        name = "cluster-" + course.__name__.replace("_", "-")
        named = {key.replace("_", "."): value for key, value in properties.items()}
        CLUSTER_SCENARIOS[name] = ClusterScenario(course, nodes, controllers, named, quiet)
        return course

    return enter


def run_cluster_scenario(name: str, seed: int, out: TextIO | None = None) -> str:
    """Run one; the hash of its trace. :class:`Violation` if something does not hold."""
    found = CLUSTER_SCENARIOS[name]
    rng = random.Random(f"{name} {seed}")
    properties = {**_random_properties(rng), **found.properties}
    faults = LinkFaults() if found.quiet else LinkFaults.random(rng)

    async def main() -> str:
        trace = Trace(out)
        trace.note(f"{name} {seed} {properties} {faults}")
        async with simulated_cluster(
            rng.getrandbits(64),
            trace,
            count=found.nodes,
            controllers=found.controllers,
            properties=properties,
            faults=faults,
        ) as cluster:
            await found.course(cluster)
        return trace.digest

    return run_deterministically(rng.getrandbits(64), main)


def _random_properties(rng: random.Random) -> dict[str, str]:
    """Kafka's defaults, or shorter times."""
    if rng.random() < 0.3:
        return {}
    return {
        "broker.session.timeout.ms": rng.choice(("2000", "3000", "9000")),
        "broker.heartbeat.interval.ms": rng.choice(("200", "500")),
        "replica.lag.time.max.ms": rng.choice(("2000", "5000", "10000")),
        "replica.fetch.wait.max.ms": rng.choice(("200", "500", "500")),
    }


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
    cluster: SimCluster, *, versions: tuple[int, ...] = (2, 1), late: float = 0.0
) -> list[TopicPartition]:
    """:func:`begin` with transactions and committed offsets; consumers read committed records only.

    ``versions`` are those of the producers' transactions, and ``late`` is the share of their requests that come twice.
    """
    partitions = await begin(cluster, producers=1, read_committed=True)
    cluster.transact(partitions, versions=versions, late=late)
    cluster.commit_offsets(partitions[0], 2)
    await await_progress(cluster, 10)
    return partitions


async def await_progress(cluster: SimCluster, count: int = 10, within: float = 60.0) -> None:
    """Until this many more records are acknowledged."""
    goal = cluster.history.acknowledgements + count
    await cluster.until(lambda: cluster.history.acknowledgements >= goal, within, "producers get nowhere")


@scenario()
async def steady(cluster: SimCluster) -> None:
    """Nothing happens for a minute."""
    partitions = await begin(cluster)
    await cluster.run_for(60)
    await cluster.finish(partitions)


@scenario()
async def one_replica(cluster: SimCluster) -> None:
    """Partitions without followers, on nodes that are killed and stopped: what was written is there again after."""
    partitions = await begin(cluster, partitions=3, replication_factor=1, min_isr=1)
    for _ in range(4):
        node = cluster.rng.choice(cluster.serving)
        if cluster.rng.random() < 0.6:
            node.kill()
        else:
            await node.stop()
        await cluster.run_for(cluster.rng.uniform(0, 8))
        node.start()
        await cluster.await_serving([node])
        await await_progress(cluster)
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
        cluster.pipeline(tp)
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
        order = list(cluster.nodes.values())
        cluster.rng.shuffle(order)
        for node in order:
            node.kill()
            await cluster.run_for(cluster.rng.choice((0, 0, 0.05, 1)))
        cluster.rng.shuffle(order)
        for node in order:
            await cluster.run_for(cluster.rng.choice((0, 0.1, 2)))
            node.start()
        await cluster.await_serving()
        await await_progress(cluster)
    await cluster.finish(partitions)


def _isolate(cluster: SimCluster, node: SimNode) -> bool:
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


async def _isolate_twice(
    cluster: SimCluster, partitions: list[TopicPartition], find: Callable[[], Awaitable[SimNode]]
) -> None:
    """Cut a node off; while the others hear one another, they lead all that it led once its session is over."""
    session = int(cluster.properties.get("broker.session.timeout.ms", 9000)) / 1000
    for _ in range(2):
        await cluster.await_full_isr(partitions)
        node = await find()
        if _isolate(cluster, node) and cluster.rng.random() < 0.5:
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
        _isolate(cluster, leader)
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


async def _some_chaos(cluster: SimCluster, rounds: int) -> None:
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
            _isolate(cluster, node)
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
    """One of a node's two log directories fails: what it holds is led elsewhere, what the other holds goes on."""
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


@scenario()
async def transactions(cluster: SimCluster) -> None:
    """Leaders and coordinators die, stop and stand still while transactions and offsets are committed."""
    partitions = await begin_transactions(cluster)
    await _some_chaos(cluster, 8)
    await cluster.finish(partitions)


@scenario()
async def late_requests(cluster: SimCluster) -> None:
    """Requests of transactions come late and twice while coordinators die (KAFKA-17754): version 2 takes no harm."""
    await late_requests_with(cluster, (2, 2, 2))


async def late_requests_with(cluster: SimCluster, versions: tuple[int, ...]) -> None:
    """The course of ``cluster-late-requests``, with producers of any version. Version 1 does take harm."""
    partitions = await begin_transactions(cluster, versions=versions, late=0.2)
    for _ in range(2):
        await _some_chaos(cluster, 2)
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
        await _some_chaos(cluster, 2)
        if cluster.rng.random() < 0.7:
            cluster.rng.choice(copiers).crash()
        await cluster.heal()
        for copier in copiers:
            goal = copier.commits + 2
            await cluster.until(lambda copier=copier, goal=goal: copier.commits >= goal, 45, "a copier gets nowhere")  # type: ignore[misc]
    await cluster.finish(partitions + targets)


@scenario(nodes=4)
async def reassignments(cluster: SimCluster) -> None:
    """Partitions are moved from brokers to others, and moves given up, while brokers die, stop and stand still."""
    partitions = await begin(cluster)
    client, rng = cluster.client(), cluster.rng
    wanted: dict[TopicPartition, list[int] | None] = {}
    for _ in range(4):
        for tp in partitions:
            wanted[tp] = rng.sample(cluster.ids, 3) if rng.random() < 0.85 else None
            code = await client.reassign(tp, wanted[tp])
            if code not in (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.NOT_CONTROLLER, None):
                raise Violation(f"{tp}: a move to {wanted[tp]} is answered {code}")
            if code != ErrorCode.NONE:
                del wanted[tp]  # it may have been heard all the same
        await _some_chaos(cluster, 2)
    await cluster.heal()

    def moved() -> bool:
        for tp in partitions:
            assigned = cluster.partition(tp)
            if assigned is None or assigned.adding_replicas or assigned.removing_replicas:
                return False
            if wanted.get(tp) and list(assigned.replicas) != wanted[tp]:
                return False
        return True

    await cluster.until(moved, 120, f"not all partitions are moved, {wanted}")
    await cluster.finish(partitions)


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

    members: list[GroupMember] = []
    join()
    join()
    for _ in range(3):
        await _some_chaos(cluster, 2)
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


@scenario()
async def chaos(cluster: SimCluster) -> None:
    """Nodes are killed, stopped, paused, cut off, slow and without power, in any order."""
    partitions = await begin(cluster)
    await _some_chaos(cluster, 12)
    await cluster.finish(partitions)

