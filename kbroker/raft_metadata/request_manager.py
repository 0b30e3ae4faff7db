"""Which peers of the quorum have a request under way, and which are left alone for a while after a failure.

One request at a time goes to a peer: the next waits for its answer, its failure, or its timeout. Times are
milliseconds of a monotonic clock.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from kbroker.raft_metadata.raft_messages import Node, RaftRequest


class _Peer:
    """Either ``correlation_id`` is under way since ``since_ms``, or the last request failed then (-1)."""

    __slots__ = ("correlation_id", "request", "since_ms")

    def __init__(self, correlation_id: int, since_ms: int, request: RaftRequest | None = None) -> None:
        self.correlation_id = correlation_id
        self.since_ms = since_ms
        self.request = request


class RequestManager:
    """The peers by node id; ``bootstrap`` is asked when no leader answers."""

    def __init__(
        self, bootstrap: Sequence[Node], *, retry_backoff_ms: int, request_timeout_ms: int, rng: random.Random
    ) -> None:
        self.bootstrap = tuple(bootstrap)
        self._retry_backoff_ms = retry_backoff_ms
        self._request_timeout_ms = request_timeout_ms
        self._rng = rng
        self._peers: dict[int, _Peer] = {}

    def ready_at(self, node: Node, now_ms: int) -> float:
        """When the next request may go to a node; not later than ``now_ms`` if at once."""
        peer = self._peers.get(node.id)
        if peer is None:
            return now_ms
        return peer.since_ms + (self._request_timeout_ms if peer.correlation_id >= 0 else self._retry_backoff_ms)

    def is_ready(self, node: Node, now_ms: int) -> bool:
        """Whether a request may go to a node now."""
        if self.ready_at(node, now_ms) > now_ms:
            return False
        self._peers.pop(node.id, None)
        return True

    def has_timed_out(self, node: Node, now_ms: int) -> bool:
        """Whether a request to the node has had no answer in time."""
        peer = self._peers.get(node.id)
        return peer is not None and peer.correlation_id >= 0 and now_ms >= peer.since_ms + self._request_timeout_ms

    def in_flight(self, node: Node, now_ms: int) -> bool:
        """Whether a request to the node is under way and in time."""
        peer = self._peers.get(node.id)
        return peer is not None and peer.correlation_id >= 0 and now_ms < peer.since_ms + self._request_timeout_ms

    def any_in_flight_until(self, now_ms: int) -> float:
        """When the first request under way runs out of time; -1 if there is none."""
        limits = [
            peer.since_ms + self._request_timeout_ms
            for peer in self._peers.values()
            if peer.correlation_id >= 0 and now_ms < peer.since_ms + self._request_timeout_ms
        ]
        return min(limits, default=-1)

    def ready_bootstrap(self, now_ms: int) -> Node | None:
        """One of the bootstrap servers that may be asked now, by chance; None if there is none."""
        if not self.bootstrap:
            return None
        first = self._rng.randrange(len(self.bootstrap))
        for index in range(len(self.bootstrap)):
            node = self.bootstrap[(first + index) % len(self.bootstrap)]
            if self.is_ready(node, now_ms):
                return node
        return None

    def bootstrap_ready_at(self, now_ms: int) -> float:
        """When the first of the bootstrap servers may be asked again."""
        return min((self.ready_at(node, now_ms) for node in self.bootstrap), default=math.inf)

    def on_sent(self, node: Node, correlation_id: int, request: RaftRequest, now_ms: int) -> None:
        """A request is on its way."""
        self._peers[node.id] = _Peer(correlation_id, now_ms, request)

    def request_of(self, node: Node, correlation_id: int) -> RaftRequest | None:
        """The request that an answer is to; None if that is not what was last sent to the node."""
        peer = self._peers.get(node.id)
        return peer.request if peer is not None and peer.correlation_id == correlation_id else None

    def on_result(self, node: Node, correlation_id: int, now_ms: int, *, success: bool) -> None:
        """An answer came, useful or not; the node is ready, or left alone for the back-off."""
        if self.request_of(node, correlation_id) is not None:
            if success:
                del self._peers[node.id]
            else:
                self._peers[node.id] = _Peer(-1, now_ms)

    def reset(self, node: Node) -> None:
        """Forget what was sent to a node; an answer to it counts no more."""
        self._peers.pop(node.id, None)

    def reset_all(self) -> None:
        """Forget everything: a change of role."""
        self._peers.clear()
