"""Actions of :class:`~kbroker.testing.faults.Faults` on records and topics, in the broker's own thread.

Each takes partitions, or None for all of the topic's. It acts on those that this node leads; compaction also acts on
those that it follows. Topics are deleted and made at the active controller.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.topics import create_topics, delete_topics
from kbroker.raft_metadata.topics import NewTopic
from kbroker.types import uuid_to_str
from kbroker.wire.control_batch import build_end_txn_marker

if TYPE_CHECKING:
    from kbroker.node.broker import Broker
    from kbroker.node.replicas.partition import Partition

Partitions = Sequence[int] | None

_READ_BYTES = 1 << 20
_MAP_BYTES = 64 << 20
_MOMENT_SECONDS = 0.01


async def _moment() -> None:
    """Wait a little by the machine's clock: the node's own may stand."""
    await trio.to_thread.run_sync(time.sleep, _MOMENT_SECONDS)


async def _partitions(
    node: Broker, topic: str, partitions: Partitions, *, leading: bool = True
) -> dict[int, Partition]:
    """The partitions that are meant, when nobody else works on their segments. ApiError for one that is not there."""
    image = node.metadata.image.topics.by_name.get(topic)
    if image is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
    manager = node.replica_manager
    find = manager.get_leader if leading else manager.get_partition
    found = {index: find(topic, index) for index in (image.partitions if partitions is None else partitions)}
    while any(one.log.segments_held for one in found.values()):
        await _moment()  # the cleaner's round, which takes as long as it takes
    return found


async def delete_records(node: Broker, topic: str, partitions: Partitions, before: int | None) -> dict[int, int]:
    """The log start offsets, after."""
    found = await _partitions(node, topic, partitions)
    for one in found.values():
        end = one.high_watermark
        if before is not None and not 0 <= before <= end:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{one.topic_partition} ends at {end}")
        one.log.maybe_increment_log_start_offset(end if before is None else before)
    node.replica_manager.checkpoints.request()
    return {index: one.log.log_start_offset for index, one in found.items()}


async def expire(node: Broker, topic: str, partitions: Partitions) -> dict[int, int]:
    """Delete records as if all had become older than ``retention.ms``; the log start offsets, after."""
    found = await _partitions(node, topic, partitions)
    for one in found.values():
        log = one.log
        if log.log_end_offset == log.log_start_offset:
            continue
        now_ms = max(node.env.wall_clock_ms(), log.largest_timestamp + 1)
        config = log.config
        log.update_config(replace(config, retention_ms=0, cleanup_policy=config.cleanup_policy | {"delete"}))
        try:
            log.roll(now_ms)
            log.delete_old_segments(now_ms + 1, high_watermark=one.high_watermark)
        finally:
            log.update_config(config)
    node.replica_manager.checkpoints.request()
    return {index: one.log.log_start_offset for index, one in found.items()}


async def apply_retention(node: Broker, topic: str, partitions: Partitions) -> dict[int, int]:
    """Retention's next round, for one topic; the log start offsets, after."""
    found = await _partitions(node, topic, partitions)
    for one in found.values():
        one.log.delete_old_segments(node.env.wall_clock_ms(), high_watermark=one.high_watermark)
    node.replica_manager.checkpoints.request()
    return {index: one.log.log_start_offset for index, one in found.items()}


async def next_producer_id(node: Broker, topic: str, partitions: Partitions) -> dict[int, int]:
    """A producer id that nobody has had, under 0."""
    return {0: await node.services.producer_ids.next_id()}


async def offset_gap(
    node: Broker, topic: str, partitions: Partitions, size: int, producer_id: int | None = None
) -> dict[int, int]:
    """Markers of transactions that nobody wrote in, each one offset; the log end offsets, once replicated.

    They bear numbers, as coordinator epochs, so that the producer id (by default a new one) tells which of them the log
    has already: done again, also by another leader, it goes on where it was.
    """
    found = await _partitions(node, topic, partitions)
    if producer_id is None:
        producer_id = await node.services.producer_ids.next_id()
    now_ms = node.env.wall_clock_ms()
    for one in found.values():
        entry = one.log.producers.active_producers.get(producer_id)
        for number in range(0 if entry is None else entry.coordinator_epoch + 1, size):
            batch = build_end_txn_marker(
                commit=False, producer_id=producer_id, producer_epoch=0, coordinator_epoch=number, timestamp_ms=now_ms
            )
            one.append_as_coordinator(bytearray(batch), now_ms, transaction_version=0)
    ends = {index: one.log.log_end_offset for index, one in found.items()}
    while any(one.high_watermark < ends[index] for index, one in found.items()):
        await _moment()
        for index in found:
            node.replica_manager.get_leader(topic, index)  # ApiError: another one leads, who may lack them
    return ends


async def compact(node: Broker, topic: str, partitions: Partitions) -> dict[int, int]:
    """A round of the cleaner over all that is there; the sizes in bytes, after."""
    from kbroker.log.compaction.cleanable import log_to_clean
    from kbroker.node.logs.log_cleaner import CleanerSettings, InlineCompactor, LogCleaner

    found = await _partitions(node, topic, partitions, leading=False)
    settings = CleanerSettings(
        threads=1, map_bytes=_MAP_BYTES, read_bytes=_READ_BYTES, bytes_per_second=float("inf"), backoff_ms=0
    )
    manager, log_manager = node.replica_manager, node.log_manager
    cleaner = LogCleaner(node.env, log_manager, manager, lambda: settings, InlineCompactor(node.env))
    for one in found.values():
        if not one.config.compact:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"cleanup.policy of {topic} is not compact")
        log = one.log
        while one.high_watermark < log.log_end_offset:  # of which a follower hears a little later
            await _moment()
        log.roll(node.env.wall_clock_ms())
        await one.flush()
        # Only what a restart would not look at again may be compacted.
        await manager.log_dirs.checkpoint()
        log.update_config(replace(log.config, min_compaction_lag_ms=0))
        try:
            dirty = log_to_clean(
                log,
                log_manager.cleaner_offsets.of(log.topic_partition),
                last_stable_offset=one.last_stable_offset,
                now_ms=node.env.wall_clock_ms(),
            )
            if dirty is not None:
                await cleaner.clean(dirty)
        finally:
            log.update_config(one.config)
        if log.topic_partition in cleaner.uncleanable:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{log.topic_partition} was not compacted: see the log")
    return {index: one.log.size for index, one in found.items()}


async def delete_topic(node: Broker, topic: str, partitions: Partitions) -> dict[int, int]:
    """Nothing is left to tell of."""
    image = node.metadata.image.topics.by_name.get(topic)
    if image is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
    await node.metadata.submit(lambda view: delete_topics(view, [image.id]))
    return {}


async def recreate_topic(node: Broker, topic: str, partitions: Partitions, count: int | None) -> dict[int, int]:
    """Nothing is left to tell of."""
    image = node.metadata.image
    before = image.topics.by_name.get(topic)
    if before is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
    wanted = NewTopic(
        topic,
        num_partitions=len(before.partitions) if count is None else count,
        replication_factor=len(before.partitions[0].replicas),
        configs=list(image.configs.for_topic(topic).items()),
    )
    while True:
        await delete_topic(node, topic, None)
        results: dict[str, Any] = await node.metadata.submit(lambda view: create_topics(view, [wanted]))
        result = results[topic]
        if not isinstance(result, ApiError):
            return {}
        if result.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # a client's Metadata request was faster: again
            raise result


async def await_topic(node: Broker, topic: str, partitions: Partitions, topic_id: str | None) -> dict[int, int]:
    """Return once the node knows the topic by this id, or (None) knows no such topic."""
    while True:
        image = node.metadata.image.topics.by_name.get(topic)
        if (None if image is None else uuid_to_str(image.id)) == topic_id:
            return {}
        await _moment()
