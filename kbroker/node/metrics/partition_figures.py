"""Figures of this broker's partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kbroker.metrics import families as f

if TYPE_CHECKING:
    from kbroker.metrics.exposition import Sample
    from kbroker.node.metrics.figures import Figures
    from kbroker.node.partition import Partition
    from kbroker.node.replica_manager import ReplicaManager


def figures(manager: ReplicaManager) -> Figures:
    """Counts over all partitions, then the figures of each."""
    partitions, purgatory = list(manager.partitions.values()), manager.purgatory
    led = [partition for partition in partitions if partition.state.is_leader]
    yield f.PARTITION_COUNT, [((), len(partitions))]
    yield f.LEADER_COUNT, [((), len(led))]
    yield f.UNDER_REPLICATED_PARTITIONS, [((), sum(map(_is_under_replicated, led)))]
    yield f.UNDER_MIN_ISR_PARTITIONS, [((), sum(map(_is_under_min_isr, led)))]
    yield f.AT_MIN_ISR_PARTITIONS, [((), sum(map(_is_at_min_isr, led)))]
    yield f.OFFLINE_REPLICAS, [((), sum(partition.offline for partition in partitions))]
    yield f.REASSIGNING, [((), sum(_is_reassigning(partition, manager) for partition in led))]
    yield f.PURGATORY, [(("Fetch",), purgatory.fetch_watch_count), (("Produce",), purgatory.produce_watch_count)]
    yield f.MAX_LAG, [((), max(map(_follower_lag, led), default=0))]

    def each(value: Callable[[Partition], float], among: list[Partition]) -> Iterator[Sample]:
        for partition in among:
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
    yield (
        f.TOPIC_PARTITIONS,
        [((topic.name,), len(topic.partitions)) for topic in list(manager.image.topics.by_name.values())],
    )
    opened = [partition for partition in partitions if partition.has_log and not partition.offline]
    led_open = [partition for partition in opened if partition.state.is_leader]
    yield f.LOG_SIZE, each(lambda partition: partition.log.size, opened)
    yield f.LOG_END_OFFSET, each(lambda partition: partition.log.log_end_offset, opened)
    yield f.LOG_START_OFFSET, each(lambda partition: partition.log.log_start_offset, opened)
    yield f.RETENTION_PERCENT, each(_retention_percent, opened)
    yield f.PRODUCER_IDS, [((), sum(len(partition.log.producers.active_producers) for partition in opened))]
    yield f.LOG_SEGMENTS, each(lambda partition: len(partition.log.segments), opened)
    yield (
        f.LAST_STABLE_OFFSET_LAG,
        each(lambda partition: partition.high_watermark - partition.last_stable_offset, led_open),
    )
    yield f.CURRENT_OFFSET, each(lambda partition: partition.high_watermark, led_open)
    yield f.OLDEST_OFFSET, each(lambda partition: partition.log.log_start_offset, led_open)


def _is_reassigning(partition: Partition, manager: ReplicaManager) -> bool:
    image = manager.image.topics.partition(*partition.topic_partition)
    return image is not None and bool(image.adding_replicas or image.removing_replicas)


def _retention_percent(partition: Partition) -> int:
    """As Kafka's ``UnifiedLog`` reckons it: whole percents."""
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
