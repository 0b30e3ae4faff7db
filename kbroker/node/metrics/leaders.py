"""Other brokers, as a scrape asks them about partitions that they lead and this node has no replica of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import trio

if TYPE_CHECKING:
    from kbroker.node.peers.peer import Peer, PeerPool
    from kbroker.raft_metadata.image import MetadataImage
    from kbroker.runtime.env import Network
    from kbroker.types import Uuid

SCRAPE_SECONDS: Final = 1.0
"""Time that a scrape waits for the answers to one kind of question."""

T = TypeVar("T")


class Leaders:
    """Connections to other brokers, kept from one scrape to the next."""

    def __init__(
        self,
        network: Network,
        node_id: int,
        address_of: Callable[[int], tuple[str, int] | None],
        image: Callable[[], MetadataImage],
    ) -> None:
        """``address_of`` gives where a broker is, None if that is not known; ``network`` reaches it."""
        self._network = network
        self._node_id = node_id
        self._address_of = address_of
        self._image = image
        self._peers: PeerPool | None = None

    def leader_of(self, topic: str, index: int) -> int | None:
        """The other broker that leads a partition; None if none does."""
        partition = self._image().topics.partition(topic, index)
        if partition is None or partition.leader < 0 or partition.leader == self._node_id:
            return None
        return partition.leader

    def topic_id(self, topic: str) -> Uuid | None:
        """The id of a topic that is there."""
        found = self._image().topics.by_name.get(topic)
        return None if found is None else found.id

    async def ask(self, questions: Mapping[int, T], ask: Callable[[Peer, T], Awaitable[None]]) -> None:
        """Put to each broker its questions, all at once, for `SCRAPE_SECONDS` at most; ``ask`` keeps the answers.

        A broker that is down or restarts gives none: what it leads stays unknown, and other figures tell of it.
        Whatever is under way when the time ends costs the connection: ``ask`` had better end before.
        """
        with trio.move_on_after(SCRAPE_SECONDS):
            async with trio.open_nursery() as nursery:
                for leader, question in questions.items():
                    nursery.start_soon(self._ask_one, leader, question, ask)

    async def _ask_one(self, leader: int, question: T, ask: Callable[[Peer, T], Awaitable[None]]) -> None:
        from kbroker.node.peers.peer import UnsupportedByPeer
        from kbroker.wire.errors import WireError

        address = self._address_of(leader)
        if address is None:
            return
        peers = self._pool()
        peer = peers.take(leader, address)
        is_answered = False
        try:
            await ask(peer, question)
            is_answered = True
        except (OSError, WireError, UnsupportedByPeer):
            pass
        finally:
            if is_answered:
                peers.give_back(leader, peer)
            else:
                peer.close()

    def close(self) -> None:
        """End the connections that are kept."""
        if self._peers is not None:
            self._peers.close()

    def _pool(self) -> PeerPool:
        from kbroker.node.peers.peer import PeerPool

        if self._peers is None:
            self._peers = PeerPool(self._network, f"broker-{self._node_id}-metrics")
        return self._peers
