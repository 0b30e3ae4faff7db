"""The requests under way to the quorum's other nodes, and the back-off after a failure (Kafka's ``RequestManager``).

A peer has one request at a time: the next waits for the response, the failure, or the timeout. Times are
milliseconds of a monotonic clock.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from kbroker.raft_metadata.raft.messages import Node, RaftRequest


class _Peer:
    """A request ``correlation_id`` is under way since ``since_ms``; or (-1) the last request failed at that time."""

    __slots__ = ("correlation_id", "request", "since_ms")

    def __init__(self, correlation_id: int, since_ms: int, request: RaftRequest | None = None) -> None:
        self.correlation_id = correlation_id
        self.since_ms = since_ms
        self.request = request


class RequestManager:
    """The peers by node id. The nodes of ``bootstrap`` are asked when no leader answers."""

    def __init__(
        self, bootstrap: Sequence[Node], *, retry_backoff_ms: int, request_timeout_ms: int, rng: random.Random
    ) -> None:
        self.bootstrap = tuple(bootstrap)
        self._retry_backoff_ms = retry_backoff_ms
        self._request_timeout_ms = request_timeout_ms
        self._rng = rng
        self._peers: dict[int, _Peer] = {}

    def ready_at(self, node: Node, now_ms: int) -> float:
        """The time from which a request may go to a node; not above ``now_ms`` if one may go now."""
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
        """Whether a request to the node has had no response in time."""
        peer = self._peers.get(node.id)
        return peer is not None and peer.correlation_id >= 0 and now_ms >= peer.since_ms + self._request_timeout_ms

    def in_flight(self, node: Node, now_ms: int) -> bool:
        """Whether a request to the node is under way and in time."""
        peer = self._peers.get(node.id)
        return peer is not None and peer.correlation_id >= 0 and now_ms < peer.since_ms + self._request_timeout_ms

    def any_in_flight_until(self, now_ms: int) -> float:
        """The time at which the first of the requests under way times out; -1 if there is none."""
        limits = [
            peer.since_ms + self._request_timeout_ms
            for peer in self._peers.values()
            if peer.correlation_id >= 0 and now_ms < peer.since_ms + self._request_timeout_ms
        ]
        return min(limits, default=-1)

    def ready_bootstrap(self, now_ms: int) -> Node | None:
        """A bootstrap server that may be asked now, chosen by chance; None if there is none."""
        if not self.bootstrap:
            return None
        first = self._rng.randrange(len(self.bootstrap))
        for index in range(len(self.bootstrap)):
            node = self.bootstrap[(first + index) % len(self.bootstrap)]
            if self.is_ready(node, now_ms):
                return node
        return None

    def bootstrap_ready_at(self, now_ms: int) -> float:
        """The time from which some bootstrap server may be asked."""
        return min((self.ready_at(node, now_ms) for node in self.bootstrap), default=math.inf)

    def on_sent(self, node: Node, correlation_id: int, request: RaftRequest, now_ms: int) -> None:
        """A request was sent."""
        self._peers[node.id] = _Peer(correlation_id, now_ms, request)

    def request_of(self, node: Node, correlation_id: int) -> RaftRequest | None:
        """The request under that correlation id; None if it is not the last that was sent to the node."""
        peer = self._peers.get(node.id)
        return peer.request if peer is not None and peer.correlation_id == correlation_id else None

    def on_result(self, node: Node, correlation_id: int, now_ms: int, *, success: bool) -> None:
        """The response came, or the failure. The node is ready again; without ``success`` only after the back-off."""
        if self.request_of(node, correlation_id) is not None:
            if success:
                del self._peers[node.id]
            else:
                self._peers[node.id] = _Peer(-1, now_ms)

    def reset(self, node: Node) -> None:
        """Forget the request to a node; a response to it is ignored from now on."""
        self._peers.pop(node.id, None)

    def reset_all(self) -> None:
        """Forget all requests and back-offs, as the role changes."""
        self._peers.clear()
