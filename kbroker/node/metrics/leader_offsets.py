"""High watermarks of partitions that this node has no replica of, as their leaders tell them when a scrape asks.

A broker coordinates groups that read any partition of the cluster. Where there are more brokers than replicas, the lag
of most groups needs another broker's answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from kbroker.node.metrics.figures import STRIDE

if TYPE_CHECKING:
    from kbroker.node.peers.peer import Peer, PeerPool
    from kbroker.raft_metadata.image import MetadataImage
    from kbroker.runtime.env import Env, Network
    from kbroker.wire.messages.list_offsets import ListOffsetsResponse

SCRAPE_SECONDS: Final = 1.0
"""Time that a scrape waits for the answers."""
FRESH_SECONDS: Final = 5.0
"""Age up to which an answer is not asked for again: several readers may scrape a node."""
KEPT_SECONDS: Final = 30.0
"""Age up to which an answer is shown while its leader gives no other. Otherwise it is unknown."""
MOST_ASKED: Final = 20_000
"""Partitions that a scrape asks about; those first whose answers are oldest."""
PORTION: Final = 500
"""Partitions of a request."""

_LATEST: Final = -1
_CONSUMER: Final = -1

Key = tuple[str, int]
"""Topic and index of a partition."""


class _Told(NamedTuple):
    offset: int
    at: float


class LeaderOffsets:
    """The high watermarks that leaders have told. ``look_up`` asks for them; then call ``high_watermark``."""

    def __init__(
        self,
        env: Env,
        network: Network,
        node_id: int,
        address_of: Callable[[int], tuple[str, int] | None],
        image: Callable[[], MetadataImage],
    ) -> None:
        """``address_of`` gives where a broker is, None if that is not known; ``network`` reaches it."""
        self._env = env
        self._network = network
        self._node_id = node_id
        self._address_of = address_of
        self._image = image
        self._peers: PeerPool | None = None
        self._told: dict[Key, _Told] = {}
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
            await self._ask_all(await self._missing(keys))

    async def _missing(self, keys: Iterable[Key]) -> dict[int, list[Key]]:
        """The partitions to be asked about, by their leaders."""
        now = self._env.now()
        never = _Told(0, -1.0)
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
        by_leader: dict[int, list[Key]] = {}
        for _, key, leader in due:
            by_leader.setdefault(leader, []).append(key)
        return by_leader

    async def _ask_all(self, questions: Mapping[int, list[Key]]) -> None:
        """Ask each broker, all at once, for `SCRAPE_SECONDS` at most.

        A broker that is down or restarts gives no answer: what it leads stays unknown, and other figures tell of it.
        A question that is under way when the time ends costs the connection.
        """
        with trio.move_on_after(SCRAPE_SECONDS):
            async with trio.open_nursery() as nursery:
                for leader, keys in questions.items():
                    nursery.start_soon(self._ask_one, leader, keys)

    async def _ask_one(self, leader: int, keys: list[Key]) -> None:
        from kbroker.node.peers.peer import PeerPool, UnsupportedByPeer
        from kbroker.wire.errors import WireError

        address = self._address_of(leader)
        if address is None:
            return
        if self._peers is None:
            self._peers = PeerPool(self._network, f"broker-{self._node_id}-metrics")
        peer = self._peers.take(leader, address)
        is_answered = False
        try:
            for begin in range(0, len(keys), PORTION):
                self._remember(await _ask(peer, keys[begin : begin + PORTION]))
            is_answered = True
        except (OSError, WireError, UnsupportedByPeer):
            pass
        finally:
            if is_answered:
                self._peers.give_back(leader, peer)
            else:
                peer.close()

    def close(self) -> None:
        """End the connections that are kept from one scrape to the next."""
        if self._peers is not None:
            self._peers.close()

    def _remember(self, response: ListOffsetsResponse) -> None:
        now = self._env.now()
        for topic in response.topics:
            for partition in topic.partitions:
                if not partition.error_code and partition.offset >= 0:
                    self._told[topic.name, partition.partition_index] = _Told(partition.offset, now)


async def _ask(peer: Peer, keys: Iterable[Key]) -> ListOffsetsResponse:
    """Ask a broker for the high watermarks of partitions, as a consumer without isolation does."""
    from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, index in keys:
        topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=index, timestamp=_LATEST))
    asked = [ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
    return await peer.ask(ListOffsetsRequest(replica_id=_CONSUMER, topics=asked))
