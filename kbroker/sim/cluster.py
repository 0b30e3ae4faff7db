"""A whole cluster in one process: the node's own code, each node on a simulated machine, all from one seed.

A :class:`SimCluster` is made inside of :func:`kbroker.sim.clock.run_deterministically`. A scenario starts and ends
nodes, cuts links and slows disks; clients produce and consume all the while, and what they are told is checked as
they are told it (:mod:`kbroker.sim.history`), as is what the nodes hold (:mod:`kbroker.sim.cluster_invariants`).
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from kbroker.raft_metadata.image import PartitionImage
from kbroker.raft_metadata.metadata_version import LATEST_METADATA_VERSION
from kbroker.sim.classic_group_clients import ClassicGroupMember
from kbroker.sim.clients import ClusterClient, Consumer, Promptness
from kbroker.sim.clock import Pauser, current_node, sim_clock
from kbroker.sim.cluster_invariants import ClusterInvariants
from kbroker.sim.copier import Copier
from kbroker.sim.group_clients import GroupHistory, SimGroupMember
from kbroker.sim.history import History
from kbroker.sim.pipelined_producer import PipelinedProducer
from kbroker.sim.producers import SimProducer
from kbroker.sim.sim_env import current_env
from kbroker.sim.sim_node import OFFSETS_PARTITIONS, SimNode, describe_error
from kbroker.sim.tcp import LinkFaults, NodeNetwork, SimNet
from kbroker.sim.transaction_clients import LateRequests, OffsetCommitter, TransactionalClient
from kbroker.sim.transactional_producer import TransactionalProducer
from kbroker.sim.world import Trace, Violation
from kbroker.types import TopicPartition


class SimCluster:
    """Nodes 1 to ``count``, their network, and clients of theirs. Made by :func:`simulated_cluster`."""

    def __init__(
        self,
        seed: int,
        nursery: trio.Nursery,
        trace: Trace,
        *,
        count: int = 3,
        controllers: int = 0,
        properties: dict[str, str] | None = None,
        metadata_version: int = LATEST_METADATA_VERSION,
        faults: LinkFaults | None = None,
        cores: int = 1,
    ) -> None:
        """A machine has ``cores`` nodes."""
        self._cores = cores
        self.seed = seed
        self.rng = random.Random(seed)
        self.nursery = nursery
        self.trace = trace
        self.properties = properties or {}
        self.metadata_version = metadata_version
        """The level that its nodes are formatted at, with the other features of such a fresh cluster."""
        self.ids = list(range(1, count + 1))
        """Of the brokers."""
        self.controller_ids = list(range(101, 101 + controllers)) or self.ids
        """Of the voters."""
        self.net = SimNet(sim_clock(), random.Random(self.rng.getrandbits(64)), trace, faults)
        self.pauser = Pauser()
        self.history = History()
        self.promptness = Promptness()
        self.invariants = ClusterInvariants(self)
        self.nodes: dict[int, SimNode] = {}
        for node_id in sorted({*self.controller_ids, *self.ids}):
            self.nodes[node_id] = SimNode(self, node_id)
        self.producers: list[SimProducer | PipelinedProducer | TransactionalProducer | Copier] = []
        self.committers: list[OffsetCommitter] = []
        self.groups: dict[str, GroupHistory] = {}
        self.consumers: list[Consumer] = []
        self.failure: BaseException | None = None
        self._clients = 0

    # Nodes

    @property
    def names(self) -> list[str]:
        """The names of all nodes' machines."""
        return [node.name for node in self.nodes.values()]

    @property
    def brokers(self) -> list[SimNode]:
        """The nodes that hold partitions."""
        return [self.nodes[node_id] for node_id in self.ids]

    def neighbour_of(self, node_id: int) -> SimNode | None:
        """The first node of the machine that this one shares; None if it has, or is, the first one."""
        number = self.ids.index(node_id) % self._cores if node_id in self.ids else 0
        return self.nodes[node_id - number] if number else None

    @property
    def serving(self) -> list[SimNode]:
        """Nodes that have come up."""
        return [node for node in self.nodes.values() if node.broker is not None]

    def start_all(self) -> None:
        """Start the nodes that are down."""
        for node in self.nodes.values():
            if not node.running:
                node.start()

    async def await_serving(self, nodes: Iterable[SimNode] | None = None, within: float = 60.0) -> None:
        """Until nodes, or all, serve."""
        wanted = list(self.nodes.values() if nodes is None else nodes)
        await self.until(lambda: all(node.broker is not None for node in wanted), within, "nodes do not come up")

    def controller(self) -> SimNode | None:
        """The active controller, if there is one; with two that think so, that of the later epoch."""
        found = [node for node in self.serving if node.broker is not None and node.broker.metadata.is_leader]
        return max(found, key=lambda node: self.raft_epoch(node), default=None)

    async def await_controller(self, within: float = 60.0) -> SimNode:
        """Until there is an active controller."""
        await self.until(lambda: self.controller() is not None, within, "no controller is elected")
        found = self.controller()
        assert found is not None
        return found

    def raft_epoch(self, node: SimNode) -> int:
        """The metadata quorum's epoch as the node knows it."""
        assert node.broker is not None
        return node.broker.metadata.describe_quorum().leader_epoch

    def image(self) -> Any:
        """The latest metadata that any node has published: who knew of it may be down by now."""
        return self.invariants.latest_image

    def partition(self, tp: TopicPartition) -> PartitionImage | None:
        """A partition as the metadata has it."""
        image = self.image()
        return None if image is None else image.topics.partition(tp.topic, tp.partition)

    def all_partitions(self) -> list[TopicPartition]:
        """The partitions of all topics, the internal ones too."""
        image = self.image()
        topics = () if image is None else image.topics.by_name.values()
        return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]

    def leader_of(self, tp: TopicPartition) -> SimNode | None:
        """The node that leads a partition, by the metadata, if it serves."""
        assigned = self.partition(tp)
        node = None if assigned is None else self.nodes.get(assigned.leader)
        return node if node is not None and node.broker is not None else None

    def authority(self, tp: TopicPartition) -> tuple[int, int] | None:
        """The leader of a partition and its epoch, if that node serves and knows it too."""
        assigned, node = self.partition(tp), self.leader_of(tp)
        if assigned is None or node is None or node.broker is None:
            return None
        held = node.broker.replica_manager.partitions.get((tp.topic, tp.partition))
        if held is None or held.state.leader_epoch != assigned.leader_epoch:
            return None
        return (node.id, assigned.leader_epoch)

    async def await_leader(self, tp: TopicPartition, *, other_than: int = -1, within: float = 60.0) -> SimNode:
        """Until a partition has a leader that serves."""

        def led() -> bool:
            node = self.leader_of(tp)
            return node is not None and node.id != other_than

        await self.until(led, within, f"{tp} gets no leader")
        node = self.leader_of(tp)
        assert node is not None
        return node

    async def await_isr(self, tp: TopicPartition, size: int, within: float = 120.0) -> None:
        """Until the ISR of a partition has this many members."""

        def there() -> bool:
            assigned = self.partition(tp)
            return assigned is not None and len(assigned.isr) == size

        await self.until(there, within, f"the ISR of {tp} does not become {size}")

    async def await_full_isr(self, partitions: Sequence[TopicPartition], within: float = 120.0) -> None:
        """Until all replicas are in sync again."""

        def there() -> bool:
            found = [self.partition(tp) for tp in partitions]
            return all(assigned is not None and len(assigned.isr) == len(assigned.replicas) for assigned in found)

        await self.until(there, within, "not all replicas come back into the ISR")

    async def until(self, condition: Callable[[], bool], within: float, otherwise: str) -> None:
        """Wait for something that others bring about; a :class:`Violation` if it does not come."""
        with trio.move_on_after(within):
            while not condition():
                await trio.sleep(0.05)
            return
        raise Violation(f"within {within:g} s {otherwise}: {self.describe()}")

    async def run_for(self, seconds: float) -> None:
        """Let time pass."""
        await trio.sleep(seconds)

    def describe(self) -> str:
        """The state of affairs in a line or two, for who reads a failure."""
        parts = []
        for node in self.nodes.values():
            if node.broker is None:
                parts.append(f"{node.name} {'starting' if node.running else 'down'}")
            else:
                image = node.broker.metadata.image
                fenced = sorted(broker.id for broker in image.brokers.values() if broker.fenced)
                role = "controller" if node.broker.metadata.is_leader else "up"
                parts.append(f"{node.name} {role} metadata {image.offset} fenced {fenced}")
        image = self.image()
        if image is not None:
            for topic in image.topics.by_name.values():
                for index, assigned in topic.partitions.items():
                    parts.append(
                        f"{topic.name}-{index} leader {assigned.leader} epoch {assigned.leader_epoch}"
                        f" isr {list(assigned.isr)} elr {list(assigned.elr)} of {list(assigned.replicas)}"
                    )
        return "; ".join(parts)

    # Clients

    def client(self) -> ClusterClient:
        """A client on a machine of its own."""
        self._clients += 1
        name = f"client{self._clients}"
        rng = random.Random(self.rng.getrandbits(64))
        return ClusterClient(
            name, NodeNetwork(self.net, self.net.host(name)), self.ids, rng, self.authority, self.promptness
        )

    def produce(
        self, partitions: Sequence[TopicPartition], interval: float = 0.2, count: int = 1, *, acks: int = -1
    ) -> None:
        """Have producers at work."""
        for _ in range(count):
            number = len(self.producers) + 1
            producer = SimProducer(number, self.client(), self.history, list(partitions), interval, acks)
            self.producers.append(producer)
            self.nursery.start_soon(self._guard, producer.run)

    def pipeline(self, tp: TopicPartition, interval: float = 0.02, *, overtakes: bool = False) -> None:
        """Have a producer at work that has five requests under way, and loses a tenth of the answers once.

        One that ``overtakes`` sends a batch before one that has failed, and gives itself a new epoch when told of it.
        """
        number = len(self.producers) + 1
        producer = PipelinedProducer(number, self.client(), self.history, tp, interval, overtakes=overtakes)
        self.producers.append(producer)
        self.nursery.start_soon(self._guard, producer.run)

    def transact(
        self,
        partitions: Sequence[TopicPartition],
        interval: float = 0.3,
        *,
        versions: Sequence[int] = (2, 2),
        late: float = 0.0,
    ) -> None:
        """Have transactional producers at work, one for each transaction version that is given.

        ``late`` is the share of their requests that come twice, the second time at any moment.
        """
        for version in versions:
            number = len(self.producers) + 1
            requests = self._transactional_client(f"txn-{number}", version, late)
            producer = TransactionalProducer(number, requests, list(partitions), interval)
            self.producers.append(producer)
            self.nursery.start_soon(self._guard, producer.run)

    def copy(self, source: TopicPartition, target: TopicPartition, *, version: int = 2, late: float = 0.0) -> Copier:
        """Have a partition copied to another one, exactly once."""
        number = len(self.producers) + 1
        copier = Copier(number, self._transactional_client(f"copier-{number}", version, late), source, target)
        self.producers.append(copier)
        self.nursery.start_soon(self._guard, copier.run)
        return copier

    def _transactional_client(self, name: str, version: int, late: float) -> TransactionalClient:
        repeated = LateRequests(self.client(), self.nursery.start_soon, late) if late else None
        timeout_ms = self.rng.choice((5_000, 20_000))
        return TransactionalClient(
            name, self.client(), self.history, version=version, timeout_ms=timeout_ms, late=repeated
        )

    def commit_offsets(self, tp: TopicPartition, count: int = 1) -> None:
        """Have groups commit offsets."""
        for _ in range(count):
            committer = OffsetCommitter(len(self.committers) + 1, self.client(), tp, OFFSETS_PARTITIONS)
            self.committers.append(committer)
            self.nursery.start_soon(self._guard, committer.run)

    def join_group(
        self, group: str, topic: str, partitions: int, *, classic: bool = False, instance_id: str | None = None
    ) -> SimGroupMember:
        """Have a member of a consumer or classic group at work, in a group that is made with its first.

        With an ``instance_id`` it is a static member.
        """
        history = self.groups.setdefault(group, GroupHistory(topic, partitions, OFFSETS_PARTITIONS))
        kind = ClassicGroupMember if classic else SimGroupMember
        member = kind(self.client(), group, history, instance_id)
        self.nursery.start_soon(self._guard, member.run)
        return member

    def consume(self, partitions: Sequence[TopicPartition], *, read_committed: bool = False) -> None:
        """Have one consumer for each partition at work."""
        for tp in partitions:
            consumer = Consumer(self.client(), self.history, tp, read_committed=read_committed)
            self.consumers.append(consumer)
            self.nursery.start_soon(self._guard, consumer.run)

    def run_client(self, run: Callable[[], Any]) -> None:
        """Have a client at work; its `Violation` ends the scenario."""
        self.nursery.start_soon(self._guard, run)

    async def _guard(self, run: Callable[[], Any]) -> None:
        try:
            await run()
        except Violation as violation:
            self.fail(violation)

    def fail(self, failure: BaseException, cause: BaseException | None = None) -> None:
        """Something is wrong: the scenario ends here."""
        if self.failure is None:
            self.trace.note(f"FAILED {failure}")
            failure.__cause__ = cause
            self.failure = failure
            self.nursery.cancel_scope.cancel()

    # The end

    async def heal(self) -> None:
        """Everything works again, and all nodes are up."""
        self.trace.note("healed")
        self.net.heal()
        for node in self.nodes.values():
            if self.pauser.is_paused(node.id):
                node.resume()
            node.machine.failing = None
            node.machine.disk_latency = min(node.machine.disk_latency, 0.002)
        for node in self.nodes.values():
            if node.env is not None and node.env.disk_failed:
                node.kill()  # it will not use that disk again
        self.start_all()
        await self.await_serving()

    async def finish(self, partitions: Sequence[TopicPartition]) -> None:
        """Heal; then everything acknowledged is to be seen within 60 seconds, and the logs are to match."""
        await self.heal()
        deadline = trio.current_time() + 60
        before = self.history.acknowledgements
        await self.until(
            lambda: not self.producers or self.history.acknowledgements > before, 60, "nothing is acknowledged"
        )
        for producer in self.producers:
            producer.stopped = True
        left = deadline - trio.current_time()
        await self.until(lambda: not self.history.unseen(), left, "not all that was acknowledged is seen")
        await self.await_full_isr(partitions)
        await trio.sleep(2)
        self.invariants.check_logs()
        await self._read_again(partitions)
        self.history.check_transactions()
        for copier in self.producers:
            if isinstance(copier, Copier):
                copier.check()
        await self._look_up_offsets()
        await self._settle_groups()
        commits = sum(client.commits for client in self.committers)
        commits += sum(group.commits for group in self.groups.values())
        self.trace.note(f"done, {self.history.describe()}, {commits} offsets committed")

    async def _look_up_offsets(self) -> None:
        for committer in self.committers:
            committer.stopped = True
            if not committer.commits:
                raise Violation(f"{committer.group} could never commit: {self.describe()}")
            with trio.move_on_after(30) as limit:
                while not await committer.look_up():
                    pass
            if limit.cancelled_caught:
                raise Violation(f"{committer.group}: nobody tells what is committed: {self.describe()}")

    async def _settle_groups(self) -> None:
        """Wait until each partition has one owner and commits get through, with every member alive."""
        for name, group in self.groups.items():
            before = group.commits
            await self.until(
                lambda group=group, before=before: group.is_settled and group.commits > before,  # type: ignore[misc]
                100,
                f"{name} does not settle: {[member.owned for member in group.members]}",
            )
            group.stopped = True

    async def _read_again(self, partitions: Sequence[TopicPartition]) -> None:
        """Read from the first offset on: what is there now is what was read before, all of it."""
        for tp in partitions:
            again = Consumer(self.client(), self.history, tp, read_committed=bool(self.history.transactions))
            end = max(self.history.of(tp).values, default=-1) + 1
            with trio.move_on_after(30):
                while again.position < end:
                    await again.poll()
            if again.position < end:
                raise Violation(f"{tp}: read to {end} before, and now to {again.position} only: {self.describe()}")


class _NodeLog(logging.Handler):
    """Writes the nodes' log lines into the trace; an error of a node that lives ends the simulation."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__()
        self._cluster = cluster

    def emit(self, record: logging.LogRecord) -> None:
        env = current_env.get()
        node = current_node.get()
        if env is None or env.dead:
            return
        self._cluster.trace.show(f"node{node} {record.levelname} {record.name}: {record.getMessage()}")
        if record.exc_info and record.levelno >= logging.ERROR and env.machine.failing is None:
            error = record.exc_info[1]
            violation = Violation(f"node{node}: {record.getMessage()}: {describe_error(error)}")
            self._cluster.fail(violation, error)


@asynccontextmanager
async def simulated_cluster(
    seed: int,
    trace: Trace,
    *,
    count: int = 3,
    controllers: int = 0,
    properties: dict[str, str] | None = None,
    metadata_version: int = LATEST_METADATA_VERSION,
    faults: LinkFaults | None = None,
    cores: int = 1,
) -> AsyncIterator[SimCluster]:
    """A cluster whose nodes are down; leaving ends them all. Raises the first :class:`Violation`."""
    logger = logging.getLogger("kbroker")
    level, propagate = logger.level, logger.propagate
    cluster: SimCluster | None = None
    handler: _NodeLog | None = None
    try:
        async with trio.open_nursery() as nursery:
            cluster = SimCluster(
                seed,
                nursery,
                trace,
                count=count,
                controllers=controllers,
                properties=properties,
                metadata_version=metadata_version,
                faults=faults,
                cores=cores,
            )
            handler = _NodeLog(cluster)
            logger.addHandler(handler)
            logger.propagate = False
            logger.setLevel(logging.INFO if trace.is_shown else logging.WARNING)
            nursery.start_soon(cluster._guard, cluster.invariants.run)
            try:
                yield cluster
            except Exception as error:
                if cluster.failure is None:
                    cluster.failure = error
            finally:
                for node in cluster.nodes.values():
                    node._gone(power=False)
                nursery.cancel_scope.cancel()
    finally:
        if handler is not None:
            logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
    if cluster is not None and cluster.failure is not None:
        raise cluster.failure
