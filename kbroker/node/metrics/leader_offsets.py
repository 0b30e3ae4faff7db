"""High watermarks of partitions that this node has no replica of, as their leaders tell them when a scrape asks.

A broker coordinates groups that read any partition of the cluster. Where there are more brokers than replicas, the lag
of most groups needs another broker's answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from kbroker.errors import ErrorCode
from kbroker.node.coordinators.latest_offsets import Found, ask_leaders
from kbroker.node.metrics.figures import STRIDE
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.node.peers.peer_pool import PeerPool
    from kbroker.raft_metadata.image import MetadataImage
    from kbroker.runtime.env import Env

SCRAPE_SECONDS: Final = 1.0
"""Time that a scrape waits for the answers."""
FRESH_SECONDS: Final = 5.0
"""Age up to which an answer is not asked for again: several readers may scrape a node."""
KEPT_SECONDS: Final = 30.0
"""Age up to which an answer is shown while its leader gives no other. Otherwise it is unknown."""
MOST_ASKED: Final = 20_000
"""Partitions that a scrape asks about; those first whose answers are oldest."""

Key = tuple[str, int]
"""Topic and index of a partition."""


class _PendingAnswers(NamedTuple):
    offset: int
    at: float


class LeaderOffsets:
    """The high watermarks that leaders have told. ``look_up`` asks for them; then call ``high_watermark``."""

    def __init__(self, env: Env, peers: PeerPool, node_id: int, image: Callable[[], MetadataImage]) -> None:
        self._env = env
        self._peers = peers
        self._node_id = node_id
        self._image = image
        self._told: dict[Key, _PendingAnswers] = {}
        self._turn = trio.Lock()

    def high_watermark(self, topic: str, index: int) -> int | None:
        """The high watermark of a partition, at most ``KEPT_SECONDS`` old; None if it is not known."""
        told = self._told.get((topic, index))
        if told is None or self._env.now() - told.at > KEPT_SECONDS:
            return None
        return told.offset

    async def look_up(self, wanted: Iterable[Key | None]) -> None:
        """Ask the leaders of partitions, each broker at most once at a time; forget all that is not wanted.

        At None others have a turn. One look-up is made at a time.
        """
        async with self._turn:
            keys: dict[Key, None] = {}
            for key in wanted:
                if key is None:
                    await trio.lowlevel.checkpoint()
                else:
                    keys[key] = None
            self._told = {key: told for key, told in self._told.items() if key in keys}
            if not keys:
                return
            missing, found = await self._missing(keys), Found()
            with trio.move_on_after(SCRAPE_SECONDS):
                await ask_leaders(self._peers, missing, found)
            # What a broker leads stays unknown while it is down; other figures tell of that.
            now = self._env.now()
            for key, offset in found.items():
                if not isinstance(offset, ErrorCode) and offset >= 0:
                    self._told[key] = _PendingAnswers(offset, now)

    async def _missing(self, keys: Iterable[Key]) -> dict[int, list[TopicPartition]]:
        """The partitions to be asked about, by their leaders."""
        now = self._env.now()
        never = _PendingAnswers(0, -1.0)
        due: list[tuple[float, Key, int]] = []
        for number, key in enumerate(keys, 1):
            if not number % STRIDE:
                await trio.lowlevel.checkpoint()
            at = self._told.get(key, never).at
            if at >= 0 and now - at <= FRESH_SECONDS:
                continue
            partition = self._image().topics.partition(*key)
            if partition is not None and partition.leader >= 0 and partition.leader != self._node_id:
                due.append((at, key, partition.leader))
        if len(due) > MOST_ASKED:
            due.sort()
            del due[MOST_ASKED:]
        by_leader: dict[int, list[TopicPartition]] = {}
        for _, key, leader in due:
            by_leader.setdefault(leader, []).append(TopicPartition(*key))
        return by_leader
