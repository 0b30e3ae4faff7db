"""Connections to other brokers, kept for the next requests of one kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.node.peers.peer import Peer
    from kbroker.runtime.env import Network

_MOST_IDLE = 4
"""Connections to one broker that are kept."""


class PeerPool:
    """A connection is one request's at a time: it is taken, and given back or closed."""

    def __init__(self, network: Network, client_id: str) -> None:
        self._network = network
        self._client_id = client_id
        self._idle: dict[int, list[Peer]] = {}

    def take(self, broker_id: int, address: tuple[str, int]) -> Peer:
        """A connection to a broker that is nobody's now, or a new one."""
        idle = self._idle.get(broker_id, [])
        while idle:
            peer = idle.pop()
            if peer.is_open and (peer.host, peer.port) == address:
                return peer
            peer.close()
        from kbroker.node.peers.peer import Peer

        return Peer(self._network, *address, client_id=self._client_id)

    def give_back(self, broker_id: int, peer: Peer) -> None:
        """Keep a connection whose request is answered."""
        idle = self._idle.setdefault(broker_id, [])
        if len(idle) < _MOST_IDLE:
            idle.append(peer)
        else:
            peer.close()

    def close(self) -> None:
        """End the connections that are kept."""
        for peers in self._idle.values():
            for peer in peers:
                peer.close()
        self._idle.clear()
