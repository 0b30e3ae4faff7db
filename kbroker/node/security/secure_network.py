"""Connections to other nodes through their secure listeners: the network, with TLS and SASL done when it returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kbroker.runtime.env import Network, Poller, Stream, StreamListener


class ConnectionStep(Protocol):
    """A part of connecting to a secure listener."""

    async def connected(self, stream: Stream, host: str, port: int) -> Stream:
        """Take a connection a step further, perhaps with a stream of its own around it. ``OSError`` if that fails.

        A step that fails closes nothing.
        """


class SecureNetwork:
    """A ``Network`` whose ``connect`` takes all steps before it returns."""

    def __init__(self, network: Network, steps: Sequence[ConnectionStep]) -> None:
        self._network = network
        self.steps = steps
        """May be replaced: those of connections that are made from then on."""

    def poller(self) -> Poller | None:
        return self._network.poller()

    async def bind(self, host: str, port: int) -> StreamListener:
        return await self._network.bind(host, port)

    async def connect(self, host: str, port: int) -> Stream:
        stream = await self._network.connect(host, port)
        try:
            for step in self.steps:
                stream = await step.connected(stream, host, port)
        except BaseException:
            stream.close()
            raise
        return stream
