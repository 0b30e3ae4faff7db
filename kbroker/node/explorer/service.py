"""The explorer of a node as one part of it: the tap, and the server that it is watched by."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kbroker.config.listeners import is_loopback
from kbroker.node.explorer.pages import ExplorerPages
from kbroker.node.explorer.tap import Tap
from kbroker.node.explorer.watched_requests import WatchedRequests

if TYPE_CHECKING:
    import trio

    from kbroker.handlers.services.connection import Connection
    from kbroker.node.explorer.observed_node import ObservedNode
    from kbroker.node.serving.observed_requests import ObservedDispatcher, ObservedReplyQueue
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)


class ExplorerService:
    """``bind`` it before the node's parts are made, and ``start`` it when they are there."""

    def __init__(self, address: tuple[str, int], env: Env, node: ObservedNode) -> None:
        self.tap = Tap(env, node.config.node_id)
        self._address = address
        self._server = ExplorerPages(address, self.tap, node).server

    @property
    def port(self) -> int:
        """The port that it is watched by."""
        return self._server.port

    def observer(
        self, connection: Connection, dispatcher: ObservedDispatcher, replies: ObservedReplyQueue
    ) -> WatchedRequests:
        """Makes the observer of a connection's requests, which shows them for as long as somebody watches."""
        return WatchedRequests(self.tap, connection, dispatcher, replies)

    async def bind(self) -> None:
        """Take the address. ``FatalError`` if it cannot be had."""
        await self._server.bind()

    def start(self, nursery: trio.Nursery) -> None:
        """Serve whoever watches."""
        logger.info("the protocol explorer is on %s; kbroker watch shows it", self._server.url)
        if not is_loopback(self._address[0]):
            logger.warning(
                "the protocol explorer is on %s: whoever reaches this address sees all requests and records",
                self._server.url,
            )
        nursery.start_soon(self._server.serve)
