"""Connections to the active controller, kept open between requests.

That one of them breaks is how the controller learns at once that a broker's process is gone (``broker_sessions``).
"""

from __future__ import annotations

from typing import Any

import trio

from kbroker.env import Network
from kbroker.node.peer import GivenUp, Peer
from kbroker.raft_metadata.voters import VoterEndpoint

MAX_IDLE = 4
"""So many connections wait for the next request."""


class ControllerChannel:
    """Sends requests to whoever is the active controller, each on a connection of its own while it is under way."""

    def __init__(self, network: Network, client_id: str) -> None:
        self._network = network
        self._client_id = client_id
        self._address: VoterEndpoint | None = None
        self._idle: list[Peer] = []
        self._under_way: set[trio.CancelScope] = set()

    async def ask(self, address: VoterEndpoint, request: Any, version: int | None, timeout: float) -> Any:
        """The controller's response to a request in this version or the latest; what ``Peer.ask`` raises."""
        self.turn_to(address)
        peer = self._take()
        if peer is None:
            peer = Peer(self._network, address.host, address.port, client_id=self._client_id)
        scope = trio.CancelScope(deadline=trio.current_time() + timeout)
        self._under_way.add(scope)
        try:
            with scope:
                response = await peer.ask(request, version)
        except BaseException:
            peer.close()
            raise
        finally:
            self._under_way.discard(scope)
        if scope.cancelled_caught:
            peer.close()
            if address != self._address:
                raise GivenUp("another is active now")
            raise OSError("it does not answer in time")
        if address == self._address and len(self._idle) < MAX_IDLE:
            self._idle.append(peer)
        else:
            peer.close()
        return response

    def turn_to(self, address: VoterEndpoint) -> None:
        """The active controller is there now. Who waits for another's answer is told so (:class:`GivenUp`): one that is
        cut off would let a heartbeat wait for half a minute, and its broker be fenced by the new controller."""
        if address != self._address:
            self._address = address
            self.close()
            for scope in self._under_way:
                scope.cancel()

    def _take(self) -> Peer | None:
        """A connection that still stands: a request must not be lost because the other end was started anew."""
        while self._idle:
            peer = self._idle.pop()
            if peer.is_open:
                return peer
            peer.close()
        return None

    def close(self) -> None:
        """End the idle connections."""
        for peer in self._idle:
            peer.close()
        self._idle.clear()
