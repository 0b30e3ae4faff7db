"""The rules that the inside of a simulated cluster must keep at every moment, where no client can look.

The rules for ISR and ELR are those of KIP-966; each is checked on every image that any node publishes, and what the
nodes hold is compared with it several times a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kbroker.errors import ApiError
from kbroker.log.partition_log import PartitionLog
from kbroker.node.broker import Broker
from kbroker.node.replicas.partition import Partition
from kbroker.raft_metadata.image import NO_LEADER, MetadataDelta, MetadataImage, PartitionImage
from kbroker.sim.clock import sim_clock
from kbroker.sim.sim_node import SimNode
from kbroker.sim.world import Violation
from kbroker.types import TopicPartition, Uuid
from kbroker.wire.batch_header import parse_header, walk_headers
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.record_batch import iter_records

SAMPLE_SECONDS = 0.25


class _Marks(NamedTuple):
    """The epochs of a partition that a node has published last."""

    leader_epoch: int
    partition_epoch: int


class ObservedCluster(Protocol):
    """The cluster that invariants are about."""

    @property
    def nodes(self) -> Mapping[int, SimNode]: ...
    @property
    def serving(self) -> Sequence[SimNode]:
        """Nodes that have come up."""
        ...

    def fail(self, failure: BaseException, cause: BaseException | None = None) -> None:
        """End the scenario."""
        ...


class ClusterInvariants:
    """Watches all nodes of a cluster."""

    def __init__(self, cluster: ObservedCluster) -> None:
        self._cluster = cluster
        self._seen: dict[int, dict[TopicPartition, _Marks]] = {}
        """By node, in its present life."""
        self._assigned: dict[tuple[bytes, int, int], tuple[Any, ...]] = {}
        """Leader, ISR and ELR by (topic id, partition, partition epoch): the same for every node."""
        self._led: dict[tuple[int, int, TopicPartition], int] = {}
        """High watermark of a leader by node, leader epoch and partition."""
        self.committed: dict[TopicPartition, int] = {}
        """The highest high watermark that a leader ever had."""
        self.latest_image: MetadataImage | None = None
        """Of the highest offset that was published by any node."""
        self.images = 0
        self.samples = 0

    def watch(self, node: SimNode, broker: Broker) -> None:
        """A node serves: look at every image that it publishes from now on."""
        seen = self._seen[node.id] = {}
        env = node.env

        def on_image(delta: MetadataDelta, image: MetadataImage) -> None:
            if env is not None and not env.dead:
                try:
                    self._check_image(node, seen, delta, image)
                except Violation as violation:
                    self._cluster.fail(violation)

        broker.metadata.subscribe(on_image)

    def forget(self, node: SimNode) -> None:
        """The node's life is over."""
        self._seen.pop(node.id, None)
        for key in [key for key in self._led if key[0] == node.id]:
            del self._led[key]

    def _check_image(
        self, node: SimNode, seen: dict[TopicPartition, _Marks], delta: MetadataDelta, image: MetadataImage
    ) -> None:
        self.images += 1
        if self.latest_image is None or image.offset > self.latest_image.offset:
            self.latest_image = image
        fenced = {broker.id for broker in image.brokers.values() if broker.fenced}
        for topic in image.topics.by_name.values():
            changed = topic.id in delta.changed_topics
            for index, assigned in topic.partitions.items():
                tp = TopicPartition(topic.name, index)
                bad = fenced.intersection(assigned.isr)
                # Without eligible leader replicas the ISR keeps the last one, which nobody can lead then. A broker that
                # has always been alone keeps what it had, whatever becomes of it.
                last = not image.features.elr_enabled and len(assigned.isr) == 1 and assigned.leader == NO_LEADER
                if bad and not last and len(image.brokers) > 1:
                    raise Violation(f"{tp}: fenced brokers {sorted(bad)} are in the ISR {assigned.isr}")
                if changed:
                    self._check_assignment(node, seen, tp, topic.id, assigned, image)

    def _check_assignment(
        self,
        node: SimNode,
        seen: dict[TopicPartition, _Marks],
        tp: TopicPartition,
        topic_id: Uuid,
        assigned: PartitionImage,
        image: MetadataImage,
    ) -> None:
        isr, elr, replicas = set(assigned.isr), set(assigned.elr), set(assigned.replicas)
        if isr & elr or not isr | elr <= replicas:
            raise Violation(f"{tp}: ISR {assigned.isr} and ELR {assigned.elr} of replicas {assigned.replicas}")
        min_isr = min(self._min_isr(tp, image), len(replicas))
        if len(isr) >= min_isr and elr:
            raise Violation(f"{tp}: ELR {assigned.elr} beside an ISR {assigned.isr} that is large enough")
        if assigned.leader >= 0 and assigned.leader not in isr:
            raise Violation(f"{tp}: leader {assigned.leader} is not in the ISR {assigned.isr}")
        marks = _Marks(assigned.leader_epoch, assigned.partition_epoch)
        before = seen.get(tp)
        if before is not None and (
            marks.leader_epoch < before.leader_epoch or marks.partition_epoch < before.partition_epoch
        ):
            raise Violation(f"{tp}: on {node.name} the epochs went back from {before} to {marks}")
        seen[tp] = marks
        what = (assigned.leader, assigned.leader_epoch, tuple(sorted(isr)), tuple(sorted(elr)))
        known = self._assigned.setdefault((topic_id, tp.partition, assigned.partition_epoch), what)
        if known != what:
            raise Violation(f"{tp}: partition epoch {assigned.partition_epoch} is {known} and, on {node.name}, {what}")

    def _min_isr(self, tp: TopicPartition, image: MetadataImage) -> int:
        configs = image.configs.for_topic(tp.topic)
        value = configs.get("min.insync.replicas") or image.configs.for_broker(None).get("min.insync.replicas")
        return int(value) if value is not None else 1

    async def run(self) -> None:
        """Look at what the nodes hold, again and again."""
        clock = sim_clock()
        while True:
            await clock.sleep(SAMPLE_SECONDS)
            self.check_now()

    def check_now(self) -> None:
        """Look at what the nodes hold now."""
        self.samples += 1
        cluster = self._cluster
        image = self.latest_image
        if image is None:
            return
        for node in cluster.serving:
            assert node.broker is not None
            for partition in node.broker.replica_manager.partitions.values():
                if partition.has_log and not partition.offline:
                    self._check_partition(node, partition, image)
        for topic in image.topics.by_name.values():
            for index, assigned in topic.partitions.items():
                self._check_members(TopicPartition(topic.name, index), assigned, image)

    def _check_partition(self, node: SimNode, partition: Partition, image: MetadataImage) -> None:
        tp, state = partition.topic_partition, partition.state
        if state.high_watermark > partition.log.log_end_offset:
            raise Violation(
                f"{tp}: on {node.name} the high watermark {state.high_watermark} is above the log's end"
                f" {partition.log.log_end_offset}"
            )
        # Also on a follower: it may come to lead, and its high watermark may have no reason to move.
        log = partition.log
        if partition.last_stable_offset < log.log_start_offset:
            raise Violation(
                f"{tp}: on {node.name} the last stable offset {partition.last_stable_offset} is below the log start"
                f" {log.log_start_offset}"
            )
        decided = log.producers.first_undecided_offset is None
        if decided and log.log_end_offset == state.high_watermark != partition.last_stable_offset:
            raise Violation(
                f"{tp}: no transaction is open on {node.name}, all up to {state.high_watermark} is committed, and"
                f" what follows {partition.last_stable_offset} is not stable"
            )
        if not state.is_leader:
            return
        key = (node.id, state.leader_epoch, tp)
        before = self._led.get(key, 0)
        if state.high_watermark < before:
            raise Violation(
                f"{tp}: on its leader {node.name} the high watermark went back from {before} to {state.high_watermark}"
            )
        self._led[key] = state.high_watermark
        assigned = image.topics.partition(tp.topic, tp.partition)
        if assigned is None or assigned.leader_epoch != state.leader_epoch:
            return
        self.committed[tp] = max(self.committed.get(tp, 0), state.high_watermark)
        if assigned.partition_epoch == state.partition_epoch:
            # Of the ELR nothing is asked here: below the minimal ISR the high watermark stands, which is looked at
            # where each member's log is.
            missing = set(assigned.isr) - state.maximal_isr
            if missing:
                raise Violation(
                    f"{tp}: the leader's maximal ISR {sorted(state.maximal_isr)} lacks {sorted(missing)} of the"
                    f" controller's ISR {assigned.isr}"
                )

    def _check_members(self, tp: TopicPartition, assigned: PartitionImage, image: MetadataImage) -> None:
        committed = self.committed.get(tp, 0)
        for member in (*assigned.isr, *assigned.elr):
            node = self._cluster.nodes.get(member)
            if node is None or node.broker is None:
                continue
            registered = image.brokers.get(member)
            if registered is None or registered.epoch != node.broker.broker_epoch:
                continue  # its life before is meant
            partition = node.broker.replica_manager.partitions.get((tp.topic, tp.partition))
            if partition is None or not partition.has_log or partition.offline:
                continue
            if partition.log.log_end_offset < committed:
                raise Violation(
                    f"{tp}: {node.name} is in ISR {assigned.isr} or ELR {assigned.elr} and holds only"
                    f" {partition.log.log_end_offset} of {committed} committed"
                )

    def check_logs(self) -> None:
        """Below the lowest high watermark, the replicas' logs are the same, byte for byte; or what compaction leaves of
        each."""
        cluster = self._cluster
        logs: dict[TopicPartition, list[tuple[SimNode, Partition]]] = {}
        for node in cluster.serving:
            assert node.broker is not None
            for partition in node.broker.replica_manager.partitions.values():
                if partition.has_log and not partition.offline:
                    logs.setdefault(partition.topic_partition, []).append((node, partition))
        for tp, replicas in logs.items():
            low = min(partition.state.high_watermark for _, partition in replicas)
            begin = max(partition.log.log_start_offset for _, partition in replicas)
            first_node, first = replicas[0]
            expected = batches(first.log, begin, low)
            for node, partition in replicas[1:]:
                found = batches(partition.log, begin, low)
                if partition.config.compact and latest_by_key(found) == latest_by_key(expected):
                    continue
                if found != expected:
                    raise Violation(f"{tp}: {describe_difference(first_node.name, expected, node.name, found)}")


def batches(log: PartitionLog, begin: int, end: int) -> list[tuple[int, int, bytes]]:
    """All batches of a log from one offset to another: first offset, leader epoch, bytes."""
    result = []
    position = begin
    while position < end:
        try:
            data = log.read_bytes(position, 1 << 20, max_offset=end)
            headers = list(walk_headers(data))
        except (ApiError, CorruptRecord) as error:
            raise Violation(f"{log.topic_partition} cannot be read: {error}") from error
        if not data:
            break
        before = position
        for start, header in headers:
            result.append((header.base_offset, header.partition_leader_epoch, data[start : start + header.size]))
            position = header.next_offset
        if position == before:
            break
    return result


def latest_by_key(batches: list[tuple[int, int, bytes]]) -> dict[bytes | None, tuple[int, bytes]]:
    """Offset and value of the last record of each key, if it has a value."""
    latest = {
        record.key: (record.offset, record.value)
        for _, _, data in batches
        for record in iter_records(data, 0)
        if not parse_header(data, 0).is_control
    }
    return {key: (offset, value) for key, (offset, value) in latest.items() if value is not None}


def describe_difference(
    one: str, expected: list[tuple[int, int, bytes]], other: str, found: list[tuple[int, int, bytes]]
) -> str:
    """The place where two logs part, in a line."""
    for left, right in zip(expected, found, strict=False):
        if left != right:
            return (
                f"the logs differ: {one} has {left[0]} of epoch {left[1]} ({len(left[2])} bytes), {other} has"
                f" {right[0]} of epoch {right[1]} ({len(right[2])} bytes)"
            )
    return f"the logs differ: {one} has {len(expected)} batches, {other} has {len(found)}"
