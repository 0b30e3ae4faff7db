"""The node's share coordinator: shards of share partitions' states over ``__share_group_state`` (KIP-932)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from kbroker.cores.coordinator.result import CoordinatorRecord, CoordinatorResult
from kbroker.cores.share_coordinator.coordinator import ShareCoordinator
from kbroker.cores.share_coordinator.settings import ShareCoordinatorSettings
from kbroker.cores.share_state import SharePartitionKey
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.coordinators.coordinator_driver import CoordinatorDriver
from kbroker.raft_metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from kbroker.raft_metadata.topics import SHARE_GROUP_STATE_TOPIC
from kbroker.runtime.later import Later

if TYPE_CHECKING:
    from kbroker.node.coordinators.coordinator_shard import Shard
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.runtime.env import Env
    from kbroker.types import Uuid

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")
Step = Callable[[ShareCoordinator, SharePartitionKey, T, int], CoordinatorResult[R]]
"""A step about one share partition: its core, its key, the request's part about it, and the time in ms."""


class ShareCoordinatorDriver(CoordinatorDriver[ShareCoordinator]):
    """Drives the share partitions' states that this node keeps."""

    TOPIC = SHARE_GROUP_STATE_TOPIC
    WHAT_IT_HOLDS = "states of share partitions"

    def __init__(self, env: Env, replica_manager: ReplicaManager, settings: ShareCoordinatorSettings) -> None:
        super().__init__(env, replica_manager, write_timeout_ms=settings.write_timeout_ms)
        self._settings = settings
        self._steps.linger_ms = max(0, settings.append_linger_ms)
        self._steps.codec = settings.codec
        self._gathered: dict[int, set[SharePartitionKey]] = {}
        """By shard, the share partitions whose changes it gathers, or has gathered and appended."""
        self._image = EMPTY_IMAGE
        self._pruned: dict[int, int] = {}

    def _new_core(self) -> ShareCoordinator:
        return ShareCoordinator(lambda: self._settings, self._count_partitions)

    def _count_partitions(self, topic_id: Uuid) -> int | None:
        topic = self._image.topics.by_id.get(topic_id)
        return None if topic is None else len(topic.partitions)

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow leadership, and forget the share partitions of deleted topics."""
        self._image = image
        super().on_image(delta, image)
        deleted = frozenset(delta.deleted_topics)
        if deleted:
            for index in list(self.shards):
                self.run_when_loaded(index, lambda core: core.on_topics_deleted(deleted))

    def coordinator_of(self, key: SharePartitionKey) -> int:
        """The broker that keeps the state of a share partition; -1 if none does now."""
        index = self.partition_for(str(key))
        found = None if index is None else self._image.topics.partition(self.TOPIC, index)
        return -1 if found is None else found.leader

    def knows(self, key: SharePartitionKey) -> bool:
        """Whether the partition exists, as far as this node has heard."""
        count = self._count_partitions(key.topic_id)
        return count is not None and key.partition < count

    def run_each(
        self, items: Mapping[SharePartitionKey, T], step: Step[T, R], *, gather: bool = False
    ) -> Later[dict[SharePartitionKey, R | ApiError]]:
        """Run a step for each share partition; the responses once all records are committed.

        The records of one shard are appended together; with ``gather`` also with those of other requests, for as long
        as ``share.coordinator.append.linger.ms`` says (KIP-1224). The value has an `ApiError` for each share partition
        whose step is refused, whose coordinator is another node, or whose records could not be stored; it is never an
        error itself.
        """
        by_shard: dict[int | None, list[SharePartitionKey]] = {}
        for key in items:
            by_shard.setdefault(self.partition_for(str(key)), []).append(key)
        answers: dict[SharePartitionKey, R | ApiError] = {}
        outcome: Later[dict[SharePartitionKey, R | ApiError]] = Later()
        missing = len(by_shard)

        def give(keys: list[SharePartitionKey], stored: Later[dict[SharePartitionKey, R | ApiError]]) -> None:
            nonlocal missing
            answers.update(stored.value if stored.error is None else dict.fromkeys(keys, stored.error))
            missing -= 1
            if not missing:
                outcome.set({key: answers[key] for key in items})

        if not by_shard:
            outcome.set({})
        for index, keys in by_shard.items():
            stored: Later[dict[SharePartitionKey, R | ApiError]] = Later()
            stored.on_done(partial(give, keys, stored))
            try:
                if gather and index is not None:
                    self._about_to_gather(index, keys)
                self.run(str(keys[0]), partial(_all_steps, items, keys, step), outcome=stored, gather=gather)
            except ApiError as error:
                stored.fail(error.without_traceback())
            except Exception:
                logger.exception("a request about the share group %r failed", keys[0].group_id)
                stored.fail(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
        return outcome

    def write_each(
        self, items: Mapping[SharePartitionKey, T], step: Step[T, R]
    ) -> Later[dict[SharePartitionKey, R | ApiError]]:
        """`run_each` for states that are to be kept, which metrics count."""
        traffic, now = self._manager.progress.traffic, self._env.now
        began = now()
        outcome = self.run_each(items, step, gather=self._steps.linger_ms > 0)
        if traffic is not None:
            shares = traffic.shares
            outcome.on_done(lambda: shares.wrote_states(len(items), now() - began))
        return outcome

    def _about_to_gather(self, index: int, keys: Sequence[SharePartitionKey]) -> None:
        """Append what a shard has gathered of these share partitions: another change of one is to see it."""
        gathered, shard = self._gathered.setdefault(index, set()), self.shards.get(index)
        if shard is not None and not gathered.isdisjoint(keys):
            self._steps.append_gathered(shard)
        if shard is None or not shard.gathered:
            gathered.clear()
        gathered.update(keys)

    # -- records that nobody needs -----------------------------------------------------------

    def pruned_offsets(self) -> dict[int, int]:
        """By partition of the topic, the offset up to which its records were deleted last, for metrics."""
        return {index: offset for index, offset in self._pruned.items() if index in self.shards}

    async def run_tasks(self) -> None:
        """Load shards, keep their deadlines, and delete old records, for as long as the node runs."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(super().run_tasks)
            nursery.start_soon(self._keep_pruning)

    async def _keep_pruning(self) -> None:
        while True:
            await trio.sleep(self._settings.prune_interval_ms / 1000)
            for shard in list(self.shards.values()):
                if shard.loaded.is_set() and self.shards.get(shard.index) is shard:
                    await self._prune(shard)

    async def _prune(self, shard: Shard[ShareCoordinator]) -> None:
        """Delete the records that later snapshots have replaced.

        Those snapshots are committed first: a leader that has not got them needs the old records.
        """
        try:
            needed = await self._answer(shard, ShareCoordinator.first_needed_offset)
            if needed is not None and needed > shard.partition.log.log_start_offset:
                self._manager.delete_records(self.TOPIC, shard.index, needed)
                self._pruned[shard.index] = needed
        except ApiError as error:
            logger.info("old records of %s-%d are still there: %s", self.TOPIC, shard.index, error)
        except Exception:
            logger.exception("old records of %s-%d could not be deleted", self.TOPIC, shard.index)


def _all_steps(
    items: Mapping[SharePartitionKey, T],
    keys: Sequence[SharePartitionKey],
    step: Step[T, R],
    core: ShareCoordinator,
    now_ms: int,
) -> CoordinatorResult[dict[SharePartitionKey, R | ApiError]]:
    """The steps of share partitions of one shard, as one; none of them depends on another."""
    responses: dict[SharePartitionKey, R | ApiError] = {}
    records: list[CoordinatorRecord] = []
    for key in keys:
        try:
            result = step(core, key, items[key], now_ms)
        except ApiError as error:
            responses[key] = error.without_traceback()
        else:
            responses[key] = result.response
            records += result.records
    return CoordinatorResult(responses, records)
