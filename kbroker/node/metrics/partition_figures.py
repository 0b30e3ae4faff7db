"""Figures of this broker's partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kbroker.node.metrics.figures import PAUSE, STRIDE, Figures
from kbroker.observe.metrics import families as f

if TYPE_CHECKING:
    from kbroker.node.replicas.partition import Partition
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.observe.metrics.exposition import Sample


class _Survey:
    """All partitions of the broker, and what is counted of them."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        self.led: list[Partition] = []
        self.opened: list[Partition] = []
        self.count = self.under_replicated = self.under_min_isr = self.at_min_isr = 0
        self.offline = self.damaged = self.reassigning = self.max_lag = self.producers = 0

    def add(self, partition: Partition) -> None:
        """Count a partition."""
        self.count += 1
        self.offline += partition.offline
        self.damaged += partition.is_damaged
        if _is_open(partition):
            self.opened.append(partition)
            self.producers += len(partition.log.producers.active_producers)
        if partition.state.is_leader:
            self.led.append(partition)
            self.under_replicated += _is_under_replicated(partition)
            self.under_min_isr += _is_under_min_isr(partition)
            self.at_min_isr += _is_at_min_isr(partition)
            self.reassigning += _is_reassigning(partition, self._manager)
            self.max_lag = max(self.max_lag, _follower_lag(partition))


def _is_open(partition: Partition) -> bool:
    return partition.has_log and not partition.offline


def figures(manager: ReplicaManager) -> Figures:
    """Counts over all partitions, then the figures of each."""
    survey, purgatory = _Survey(manager), manager.purgatory
    for number, partition in enumerate(list(manager.partitions.values()), 1):
        survey.add(partition)
        if not number % STRIDE:
            yield PAUSE
    yield f.PARTITION_COUNT, [((), survey.count)]
    yield f.LEADER_COUNT, [((), len(survey.led))]
    yield f.UNDER_REPLICATED_PARTITIONS, [((), survey.under_replicated)]
    yield f.UNDER_MIN_ISR_PARTITIONS, [((), survey.under_min_isr)]
    yield f.AT_MIN_ISR_PARTITIONS, [((), survey.at_min_isr)]
    yield f.OFFLINE_REPLICAS, [((), survey.offline)]
    yield f.DAMAGED_REPLICAS, [((), survey.damaged)]
    yield f.REASSIGNING, [((), survey.reassigning)]
    yield f.PURGATORY, [(("Fetch",), purgatory.fetch_watch_count), (("Produce",), purgatory.produce_watch_count)]
    yield f.MAX_LAG, [(("Replica",), survey.max_lag)]
    yield f.PRODUCER_IDS, [((), survey.producers)]
    led, opened = survey.led, survey.opened

    def each(value: Callable[[Partition], float], among: list[Partition]) -> Iterator[Sample]:
        for partition in among:
            topic, index = partition.topic_partition
            yield (topic, str(index)), value(partition)

    def of_log(value: Callable[[Partition], float], *, as_leader: bool = False) -> Iterator[Sample]:
        for partition in opened:  # some time passes between two of them
            if _is_open(partition) and (partition.state.is_leader or not as_leader):
                topic, index = partition.topic_partition
                yield (topic, str(index)), value(partition)

    yield f.UNDER_REPLICATED, each(_is_under_replicated, led)
    yield f.UNDER_MIN_ISR, each(_is_under_min_isr, led)
    yield f.AT_MIN_ISR, each(_is_at_min_isr, led)
    yield f.REPLICAS, each(_replicas, led)
    yield f.IN_SYNC_REPLICAS, each(_isr_size, led)
    yield f.LEADER, each(lambda partition: partition.state.leader, led)
    yield f.LEADER_IS_PREFERRED, each(_is_led_by_preferred, led)
    yield f.REPLICA, each(_replicas, led)
    yield f.IN_SYNC_REPLICA, each(_isr_size, led)
    yield f.UNDER_REPLICATED_PARTITION, each(_is_under_replicated, led)
    yield f.TOPIC_PARTITIONS, _topics(manager)
    yield f.LOG_SIZE, of_log(lambda partition: partition.log.size)
    yield f.LOG_END_OFFSET, of_log(lambda partition: partition.log.log_end_offset)
    yield f.LOG_START_OFFSET, of_log(lambda partition: partition.log.log_start_offset)
    yield f.RETENTION_PERCENT, of_log(_retention_percent)
    yield f.LOG_SEGMENTS, of_log(lambda partition: len(partition.log.segments))
    yield (
        f.LAST_STABLE_OFFSET_LAG,
        of_log(lambda partition: partition.high_watermark - partition.last_stable_offset, as_leader=True),
    )
    yield f.CURRENT_OFFSET, of_log(lambda partition: partition.high_watermark, as_leader=True)
    yield f.OLDEST_OFFSET, of_log(lambda partition: partition.log.log_start_offset, as_leader=True)


def _topics(manager: ReplicaManager) -> Iterator[Sample]:
    """The sizes of topics, each on one node: dashboards add them up, since kafka-exporter is alone."""
    for topic in list(manager.image.topics.by_name.values()):
        if manager.node_id == next((each.leader for each in topic.partitions.values() if each.leader >= 0), None):
            yield (topic.name,), len(topic.partitions)


def _is_reassigning(partition: Partition, manager: ReplicaManager) -> bool:
    image = manager.image.topics.partition(*partition.topic_partition)
    return image is not None and bool(image.adding_replicas or image.removing_replicas)


def _retention_percent(partition: Partition) -> int:
    """The share that Kafka's ``UnifiedLog`` reckons, in whole percents."""
    limit = partition.config.retention_bytes
    return 100 * partition.log.size // limit if limit > 0 else 0


def _replicas(partition: Partition) -> int:
    return len(partition.state.replicas)


def _isr_size(partition: Partition) -> int:
    return len(partition.state.isr)


def _is_under_replicated(partition: Partition) -> bool:
    return len(partition.state.isr) < len(partition.state.replicas)


def _min_isr(partition: Partition) -> int:
    """No more than there are replicas: Kafka counts so, too (``Partition.effectiveMinIsr``)."""
    return min(partition.config.min_insync_replicas, len(partition.state.replicas))


def _is_under_min_isr(partition: Partition) -> bool:
    return len(partition.state.isr) < _min_isr(partition)


def _is_at_min_isr(partition: Partition) -> bool:
    return len(partition.state.isr) == _min_isr(partition)


def _is_led_by_preferred(partition: Partition) -> bool:
    return partition.state.replicas[:1] == (partition.state.leader,)


def _follower_lag(partition: Partition) -> int:
    if not partition.has_log or partition.offline or not partition.state.progress:
        return 0
    end = partition.log.log_end_offset
    return max(max(0, end - max(0, progress.log_end_offset)) for progress in partition.state.progress.values())
