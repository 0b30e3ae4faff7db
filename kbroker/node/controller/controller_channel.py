"""Connections to the active controller, kept open between requests: some for each purpose, which share nothing.

The controller learns from the end of the heartbeats' connection that a broker's process is gone
(``broker_sessions``). Nothing else may use that connection: a request that the controller answers by closing it would
leave the broker without one until its next heartbeat.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from kbroker.handlers.common.forwarding import NotForwarded
from kbroker.node.peers.peer_pool import NoAnswer, PeerPool
from kbroker.raft_metadata.raft.messages import Node
from kbroker.raft_metadata.raft.voters import VoterEndpoint
from kbroker.runtime.env import Network
from kbroker.wire.messages.alter_partition import AlterPartitionRequest
from kbroker.wire.messages.nodes import BrokerHeartbeatRequest
from kbroker.wire.schema import Request

R = TypeVar("R")

MAX_FORWARDED = 8
"""Clients' requests under way to the controller at a time. Kafka's brokers have one (``maxInFlightRequests``)."""

MAX_WAITING = 1000
"""Clients' requests that wait for their turn, for ``request.timeout.ms`` at most."""


class Purpose(enum.Enum):
    """The purpose of a request to the controller (Kafka has a ``NodeToControllerChannelManager`` for each)."""

    STANDING = "heartbeat"
    """Registration and heartbeats."""
    OWN = "own"
    """The node's other requests: AlterPartition, AllocateProducerIds, AssignReplicasToDirs."""
    CLIENTS = "forwarding"
    """Clients' requests, and topics that are created because of them when they are first used."""


class ControllerChannels:
    """A node's connections to the active controller, whichever node that is."""

    def __init__(
        self, network: Network, node_id: int, leader: Callable[[], Node | None], request_timeout: float
    ) -> None:
        """``leader`` gives the active controller as far as known; ``request_timeout`` is in seconds."""
        self._node_id = node_id
        self._leader = leader
        self._request_timeout = request_timeout
        self._asked: Node | None = None
        """The node that was the active controller when it was last asked."""
        self._pools = {
            purpose: PeerPool(network, f"to-controller-{node_id}-{purpose.value}", self._address_of, request_timeout)
            for purpose in Purpose
        }
        self._turn = trio.Semaphore(MAX_FORWARDED)
        self._waiting = 0

    async def ask(self, request: Request[R], purpose: Purpose, timeout: float | None = None) -> R | None:
        """The active controller's answer to a request of this node; None if it cannot be had.

        ``timeout`` in seconds; ``request.timeout.ms`` if it is None.
        """
        return await self._ask(request, None, purpose, timeout)

    async def forward(self, request: Request[R], version: int | None = None) -> R | None:
        """:meth:`ask` for a client, in this version or the latest.

        :class:`NotForwarded` if its turn does not come within ``request.timeout.ms``, or too many wait for theirs.
        """
        async with self._clients_turn():
            return await self._ask(request, version, Purpose.CLIENTS, None)

    @asynccontextmanager
    async def _clients_turn(self) -> AsyncIterator[None]:
        try:
            self._turn.acquire_nowait()
        except trio.WouldBlock:
            await self._wait_for_turn()
        try:
            yield
        finally:
            self._turn.release()

    async def _wait_for_turn(self) -> None:
        if self._waiting >= MAX_WAITING:
            raise NotForwarded("Too many requests wait for the active controller.")
        self._waiting += 1
        try:
            with trio.fail_after(self._request_timeout):
                await self._turn.acquire()
        except trio.TooSlowError:
            raise NotForwarded("The active controller has no time for this request.") from None
        finally:
            self._waiting -= 1

    async def _ask(self, request: Request[R], version: int | None, purpose: Purpose, timeout: float | None) -> R | None:
        leader = self._leader()
        if leader is None or leader.id == self._node_id:
            return None
        self.turn_to(leader)
        try:
            return await self._pools[purpose].ask(leader.id, request, version, fit=for_version, timeout=timeout)
        except NoAnswer:
            return None

    def _address_of(self, node_id: int) -> VoterEndpoint | None:
        return None if self._asked is None else self._asked.address

    def turn_to(self, leader: Node) -> None:
        """Give up what is under way to the last active controller, if it is not this one.

        A controller that is cut off would let a heartbeat wait for half a minute, and the new one would fence its
        broker.
        """
        last, self._asked = self._asked, leader
        if last is not None and last != leader:
            for pool in self._pools.values():
                pool.give_up(last.id)

    def close(self) -> None:
        """End the idle connections."""
        for pool in self._pools.values():
            pool.close()


def for_version(request: R, version: int) -> R:
    """The request itself, or as much of it as this version of its API can express."""
    if isinstance(request, AlterPartitionRequest) and version < 3:
        return _without_broker_epochs(request)  # type: ignore[return-value]
    if isinstance(request, BrokerHeartbeatRequest) and version < 1 and request.offline_log_dirs:
        # Such a controller knows no directories: leaders move when the broker has lost all of them, and ends.
        return dataclasses.replace(request, offline_log_dirs=[])
    return request


def _without_broker_epochs(request: AlterPartitionRequest) -> AlterPartitionRequest:
    topics = [
        dataclasses.replace(
            topic,
            partitions=[
                dataclasses.replace(
                    partition,
                    new_isr=[member.broker_id for member in partition.new_isr_with_epochs],
                    new_isr_with_epochs=[],
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return dataclasses.replace(request, topics=topics)
