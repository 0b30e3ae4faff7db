"""Requests of a node to others, by their ids: each has a connection of its own while it is under way.

All requests between nodes are made here but two kinds, which use a `Peer` themselves. For replicas of the metadata log
a newer request replaces an older one (`controller.raft_peers`). Followers ask all the time, so that a scope for each
request would cost too much (`replicas.replica_fetcher`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import trio

from kbroker.wire.errors import EncodeError, WireError

if TYPE_CHECKING:
    from kbroker.node.peers.peer import Peer
    from kbroker.runtime.env import Network
    from kbroker.wire.schema import Request

logger = logging.getLogger(__name__)

R = TypeVar("R")

MOST_IDLE = 4
"""Connections to one node that are kept for the next requests."""


class NoAnswer(OSError):
    """The text says which node gives no answer, and why. The pool has logged it."""


class NoAnswerInTime(NoAnswer):
    """The node may be at work still."""


class PeerPool:
    """Asks other nodes for one purpose. What is asked for another purpose shares nothing with it."""

    def __init__(
        self, network: Network, client_id: str, address_of: Callable[[int], tuple[str, int] | None], timeout: float
    ) -> None:
        """``address_of`` gives where a node is, None if that is not known; ``timeout`` is a request's, in seconds."""
        self._network = network
        self._client_id = client_id
        self._address_of = address_of
        self._timeout = timeout
        self._idle: dict[int, list[Peer]] = {}
        self._under_way: dict[trio.CancelScope, int] = {}
        self._last_problems: dict[int, str] = {}

    async def ask(
        self,
        node_id: int,
        request: Request[R],
        version: int | None = None,
        *,
        least_version: int = 0,
        fit: Callable[[Request[R], int], Request[R]] | None = None,
        timeout: float | None = None,
    ) -> R:
        """Return a node's response to a request in ``version``, or the latest that both know; `NoAnswer`.

        ``fit`` makes of a request what a version can express. ``timeout`` in seconds takes the place of the pool's.
        """
        try:
            response = await self._ask(node_id, request, version, least_version, fit, timeout)
        except NoAnswer as error:
            if self._last_problems.get(node_id) != str(error):  # logged once, however often it is tried
                self._last_problems[node_id] = str(error)
                logger.info("%s: %s", self._client_id, error)
            raise
        self._last_problems.pop(node_id, None)
        return response

    async def _ask(
        self,
        node_id: int,
        request: Request[R],
        version: int | None,
        least_version: int,
        fit: Callable[[Request[R], int], Request[R]] | None,
        timeout: float | None,
    ) -> R:
        address = self._address_of(node_id)
        if address is None:
            await trio.lowlevel.checkpoint()
            raise NoAnswer(f"node {node_id} has no address that is known here")
        from kbroker.node.peers.peer import Peer, UnsupportedByPeer  # a node that is alone asks nobody

        def make(chosen: int) -> Request[R]:
            if chosen < least_version:
                raise UnsupportedByPeer(f"version {chosen} is too old")
            return request if fit is None else fit(request, chosen)

        peer = self._take(node_id, address) or Peer(self._network, *address, client_id=self._client_id)
        name = f"node {node_id} at {address[0]}:{address[1]}"
        scope = trio.move_on_after(self._timeout if timeout is None else timeout)
        self._under_way[scope] = node_id
        with scope:
            try:
                response, _ = await peer.ask_versioned(type(request), make, version)
            except (OSError, WireError, EncodeError, UnsupportedByPeer) as error:
                raise NoAnswer(f"{name}: {error}") from error
            finally:
                is_awaited = self._under_way.pop(scope, None) is not None
            idle = self._idle.setdefault(node_id, [])
            if is_awaited and len(idle) < MOST_IDLE:
                idle.append(peer)
            else:
                peer.close()
            return response
        if is_awaited:
            raise NoAnswerInTime(f"{name} does not answer in time")
        raise NoAnswer(f"{name} is asked no more")

    def _take(self, node_id: int, address: tuple[str, int]) -> Peer | None:
        """Return an idle connection that is still open: a restart of the other node must cost no request."""
        idle = self._idle.get(node_id, [])
        while idle:
            peer = idle.pop()
            if peer.is_open and (peer.host, peer.port) == address:
                return peer
            peer.close()
        return None

    def give_up(self, node_id: int) -> None:
        """End the requests to a node: it is fenced, was restarted, or is not the one to ask any more.

        A node that hangs or is cut off refuses no request, and others may have taken its place long before
        ``request.timeout.ms`` is over.
        """
        self.close(node_id)
        for scope in [each for each, asked in self._under_way.items() if asked == node_id]:
            del self._under_way[scope]
            scope.cancel()

    def close(self, *node_ids: int) -> None:
        """End the idle connections, to these nodes or to all."""
        for node_id in node_ids or list(self._idle):
            for peer in self._idle.pop(node_id, ()):
                peer.close()


PoolFor = Callable[[str], PeerPool]
"""Makes the pool of a purpose."""
