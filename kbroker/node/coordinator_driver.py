"""Drives the group coordinator's shards: one per partition of ``__consumer_offsets`` that this node leads.

The cores in `kbroker.groups` decide; here their records are appended and replayed, replies are given when
the records are committed, and time is told. Winning a partition's leadership loads its shard from the
log, losing it answers everybody who waits with NOT_COORDINATOR.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

import trio

from kbroker.coordinator.result import CoordinatorRecord, CoordinatorResult, Token
from kbroker.errors import ApiError, ErrorCode
from kbroker.groups.classic_protocol import append_error_for_client
from kbroker.groups.group_coordinator import GroupCoordinator
from kbroker.groups.partitioner import partition_for
from kbroker.groups.settings import GroupSettings
from kbroker.node.group_topics import ImageTopics
from kbroker.replication.delayed import DelayedProduce
from kbroker.types import TopicPartition
from kbroker.wire.errors import WireError
from kbroker.wire.record_batch import Record, build_batch, iter_records, walk_headers

if TYPE_CHECKING:
    from kbroker.config import GroupConfig
    from kbroker.env import Env
    from kbroker.node.replica_manager import Partition, ReplicaManager

logger = logging.getLogger(__name__)
R = TypeVar("R")

CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
_LOAD_CHUNK_BYTES = 1 << 20
_BATCH_BYTES = 256 * 1024
"""Records of one step go into batches of about this size, well below any ``max.message.bytes``."""
_REPLICATION_TIMEOUT_MS = 5_000
"""``offsets.commit.timeout.ms``'s default."""


class PendingReply:
    """A reply that comes with a later step; ``wake`` is set by the connection that waits."""

    __slots__ = ("done", "response", "token", "wake")

    def __init__(self, token: Token) -> None:
        self.token = token
        self.done = False
        self.response: Any = None
        self.wake: Callable[[], None] | None = None

    def complete(self, response: object) -> None:
        """Give the reply; the first one counts."""
        if not self.done:
            self.done = True
            self.response = response
            if self.wake is not None:
                self.wake()


class _Shard:
    """A partition's core, and whether its log has been replayed."""

    __slots__ = ("core", "leader_epoch", "loaded", "partition")

    def __init__(self, core: GroupCoordinator, partition: Partition, leader_epoch: int) -> None:
        self.core = core
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.loaded = trio.Event()


class CoordinatorDriver:
    """The node's group coordinator. `run` must be running for loads and deadlines to happen."""

    TOPIC = CONSUMER_OFFSETS_TOPIC

    def __init__(
        self,
        *,
        env: Env,
        replica_manager: ReplicaManager,
        settings: Callable[[], GroupSettings],
        group_config: Callable[[Any, str], GroupConfig],
    ) -> None:
        """``group_config`` gives what is in force for a group by a metadata image."""
        self._env = env
        self._manager = replica_manager
        self._settings = settings
        self._compute_group_config = group_config
        self._group_configs: dict[str, GroupConfig] = {}
        self._image: Any = None
        self._topics: ImageTopics | None = None
        self._shards: dict[int, _Shard] = {}
        self._partition_count = 0
        self._waiting: dict[Token, PendingReply] = {}
        self._to_load: list[tuple[int, _Shard]] = []
        self._wake_timer = trio.Event()
        self._sleeping_until_ms: float = float("inf")
        self._wall_ms_at_start = env.wall_clock_ms()
        self._started = env.now()

    def now_ms(self) -> int:
        """Wall-clock ms of the node's start plus the time run since: sessions survive a clock that jumps."""
        return self._wall_ms_at_start + int((self._env.now() - self._started) * 1000)

    # -- metadata ------------------------------------------------------------------------------

    def on_image(self, delta: Any, image: Any) -> None:
        """Follow the leadership of the topic's partitions, and forget offsets of deleted topics."""
        topic = image.topics.by_name.get(CONSUMER_OFFSETS_TOPIC)
        led: dict[int, int] = {}
        if topic is not None:
            self._partition_count = len(topic.partitions)
            led = {
                index: assigned.leader_epoch
                for index, assigned in topic.partitions.items()
                if assigned.leader == self._manager.node_id
            }
        else:
            self._partition_count = 0
        self._follow_configs_and_topics(delta, image)
        for index in [index for index in self._shards if index not in led]:
            self._unload(index)
        for index, leader_epoch in led.items():
            shard = self._shards.get(index)
            if shard is not None:
                shard.leader_epoch = leader_epoch
                continue
            partition = self._manager.get_partition(CONSUMER_OFFSETS_TOPIC, index)
            rng = random.Random(self._env.rng.getrandbits(64))
            core = GroupCoordinator(self._settings, rng, self._group_config)
            if self._topics is not None:
                core.on_topics(self._topics, (), False)
            shard = self._shards[index] = _Shard(core, partition, leader_epoch)
            self._to_load.append((index, shard))
            self._wake()
        deleted = self._deleted_topics(delta, image)
        if deleted:
            for shard in self._shards.values():
                if shard.loaded.is_set():
                    self._process(shard, shard.core.on_topics_deleted(deleted))

    def _follow_configs_and_topics(self, delta: Any, image: Any) -> None:
        before, self._image = self._image, image
        if before is None or before.configs is not image.configs:
            self._group_configs = {}
        if before is not None and before.topics is image.topics:
            return
        self._topics = ImageTopics(image)
        old = {} if before is None else before.topics.by_id
        changed = {old[topic_id].name for topic_id in delta.deleted_topics if topic_id in old}
        new = [topic_id for topic_id in delta.changed_topics if topic_id not in old]
        for topic_id in delta.changed_topics:
            topic = image.topics.by_id.get(topic_id)
            if topic is not None:
                changed.add(topic.name)
        for shard in self._shards.values():
            shard.core.on_topics(self._topics, changed, bool(new))

    def _group_config(self, group_id: str) -> GroupConfig:
        found = self._group_configs.get(group_id)
        if found is None:
            found = self._group_configs[group_id] = self._compute_group_config(self._image, group_id)
        return found

    def _deleted_topics(self, delta: Any, image: Any) -> list[tuple[str, Any]]:
        before = getattr(delta, "image", None)
        if before is None:
            return []
        found = []
        for topic_id in delta.deleted_topics:
            topic = before.topics.by_id.get(topic_id)
            if topic is not None and topic.name != CONSUMER_OFFSETS_TOPIC:
                found.append((topic.name, topic_id))
        return found

    def _unload(self, index: int) -> None:
        shard = self._shards.pop(index)
        shard.loaded.set()
        self._deliver(shard.core.on_unloaded())

    # -- requests ------------------------------------------------------------------------------

    def partition_for(self, group_id: str) -> int | None:
        """The partition whose leader coordinates the group; None before the topic exists."""
        return partition_for(group_id, self._partition_count) if self._partition_count else None

    async def loaded_shard(self, group_id: str) -> GroupCoordinator:
        """The group's shard, after it has been loaded. `ApiError` when this node does not coordinate it."""
        return (await self._shard(group_id)).core

    async def _shard(self, group_id: str) -> _Shard:
        index = self.partition_for(group_id)
        if index is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        shard = self._shards.get(index)
        if shard is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if not shard.loaded.is_set():
            await shard.loaded.wait()
            if self._shards.get(index) is not shard:
                raise ApiError(ErrorCode.NOT_COORDINATOR)
        return shard

    async def loaded_shards(self) -> list[GroupCoordinator]:
        """All shards of this node, for requests that concern every group."""
        for shard in list(self._shards.values()):
            await shard.loaded.wait()
        return [shard.core for shard in self._shards.values()]

    async def submit(
        self, group_id: str, operation: Callable[[GroupCoordinator, int], CoordinatorResult[R]]
    ) -> R | PendingReply:
        """Run a step on the group's shard.

        Returns its response once the records are committed, or a `PendingReply` where the core gave a
        token. `ApiError` for what the step refuses, or when its records cannot be stored.
        """
        shard = await self._shard(group_id)
        result = operation(shard.core, self.now_ms())
        pending = None
        if isinstance(result.response, Token):
            pending = self._waiting[result.response] = PendingReply(result.response)
        stored = self._process(shard, result)
        if pending is not None:
            return pending
        if stored is not None:
            if not stored.done:
                woken = trio.Event()
                stored.wake = woken.set
                await woken.wait()
            if stored.response is not None:
                raise ApiError(append_error_for_client(stored.response))
        return result.response

    async def resolve(self, reply: R | PendingReply, connection: Any) -> R:
        """Wait for a reply that comes later, for as long as its client stays."""
        if not isinstance(reply, PendingReply):
            return reply
        try:
            await connection.wait_for(reply, float("inf"))
        finally:
            self._waiting.pop(reply.token, None)
        return cast(R, reply.response)

    # -- records -------------------------------------------------------------------------------

    def _process(self, shard: _Shard, result: CoordinatorResult[Any]) -> PendingReply | None:
        """Append and replay a result; replies go out when it is committed.

        Returns None if there was nothing to append, else what is completed with the append's error or None.
        """
        if not result.records:
            self._finish(shard, result, None)
            return None
        outcome = PendingReply(Token())

        def finished(error: ErrorCode | None) -> None:
            outcome.complete(error)
            self._finish(shard, result, error)

        try:
            end_offset = self._append(shard, result.records)
        except ApiError as error:
            finished(error.code)
            return outcome
        if result.replay:
            now_ms = self.now_ms()
            for record in result.records:
                shard.core.replay(record, now_ms)
        if shard.partition.state.high_watermark >= end_offset:
            finished(None)
            return outcome
        key = shard.partition.topic_partition

        def replicated(results: dict[Hashable, Any]) -> None:
            finished(results[key])

        self._manager.watch_produce(DelayedProduce({key: end_offset}, replicated), _REPLICATION_TIMEOUT_MS)
        return outcome

    def _finish(self, shard: _Shard, result: CoordinatorResult[Any], error: ErrorCode | None) -> None:
        self._deliver(result.completed)
        if result.on_stored is not None:
            self._process(shard, result.on_stored(error, self.now_ms()))
        self._reconsider_deadline(shard)

    def _append(self, shard: _Shard, records: list[CoordinatorRecord]) -> int:
        now_ms = self._env.wall_clock_ms()
        end_offset = 0
        for chunk in _chunks(records):
            batch = build_batch([Record(0, now_ms, record.key, record.value) for record in chunk])
            info = shard.partition.append(memoryview(bytearray(batch)), -1, now_ms)
            end_offset = info.last_offset + 1
        return end_offset

    def _deliver(self, completed: list[tuple[Token, object]]) -> None:
        for token, response in completed:
            pending = self._waiting.pop(token, None)
            if pending is not None:
                pending.complete(response)

    # -- background ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Load shards and keep their deadlines, for as long as the node runs."""
        while True:
            self._wake_timer = trio.Event()
            while self._to_load:
                index, shard = self._to_load.pop(0)
                if self._shards.get(index) is shard:
                    await self._load(index, shard)
            deadline_ms = self._run_due()
            self._sleeping_until_ms = float("inf") if deadline_ms is None else deadline_ms
            seconds = (self._sleeping_until_ms - self.now_ms()) / 1000
            with trio.move_on_after(max(seconds, 0.001)):
                await self._wake_timer.wait()

    def _run_due(self) -> int | None:
        """Handle every deadline that has come; the next one, or None."""
        earliest: int | None = None
        for shard in list(self._shards.values()):
            if not shard.loaded.is_set():
                continue
            while (result := shard.core.on_deadline(self.now_ms())) is not None:
                self._process(shard, result)
            deadline_ms = shard.core.next_deadline()
            if deadline_ms is not None and (earliest is None or deadline_ms < earliest):
                earliest = deadline_ms
        return earliest

    def _reconsider_deadline(self, shard: _Shard) -> None:
        deadline_ms = shard.core.next_deadline()
        if deadline_ms is not None and deadline_ms < self._sleeping_until_ms:
            self._wake()

    def _wake(self) -> None:
        self._wake_timer.set()

    async def _load(self, index: int, shard: _Shard) -> None:
        """Replay the partition into its shard."""
        key = TopicPartition(CONSUMER_OFFSETS_TOPIC, index)
        count = 0
        try:
            if shard.partition.has_log or self._manager.log_manager.get_log(key) is not None:
                log = shard.partition.log
                offset, end = log.log_start_offset, log.log_end_offset
                while offset < end:
                    data = log.read_bytes(offset, _LOAD_CHUNK_BYTES, max_offset=end)
                    if not data:
                        break
                    now_ms = self.now_ms()
                    for position, header in walk_headers(data):
                        offset = header.next_offset
                        if header.is_control:
                            continue
                        for record in iter_records(data, position):
                            self._replay_loaded(shard, key, record, now_ms)
                            count += 1
                    await trio.lowlevel.checkpoint()
        except (ApiError, WireError) as error:
            logger.error("cannot load the groups of %s: %s", key, error)
            if self._shards.get(index) is shard:
                self._unload(index)
            return
        shard.core.on_loaded(self.now_ms())
        shard.loaded.set()
        if count:
            logger.info("loaded the groups of %s from %d records", key, count)

    @staticmethod
    def _replay_loaded(shard: _Shard, key: TopicPartition, record: Any, now_ms: int) -> None:
        if record.key is None:
            return
        value = None if record.value is None else bytes(record.value)
        try:
            shard.core.replay(CoordinatorRecord(bytes(record.key), value), now_ms)
        except WireError as error:
            logger.warning("%s: record at offset %d is unreadable and skipped: %s", key, record.offset, error)


def _chunks(records: list[CoordinatorRecord]) -> Iterator[list[CoordinatorRecord]]:
    chunk: list[CoordinatorRecord] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += len(record.key) + len(record.value or b"")
        if size >= _BATCH_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk

