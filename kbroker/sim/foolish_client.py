"""A client that asks all nodes for what is old, malformed, huge or never whole, in a loop, and wants nothing by it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping

import trio

from kbroker.handlers.registration import BROKER, registrations
from kbroker.sim.clients import BROKER_PORT, CONTROLLER_PORT, ClusterClient
from kbroker.types import METADATA_TOPIC
from kbroker.wire.errors import EncodeError
from kbroker.wire.framing import request_bytes
from kbroker.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from kbroker.wire.registry import API_KEYS

AT_ONCE = 12
"""Requests at the same moment now and then, more than a node keeps connections for."""

MOST_UNDERWAY = 40

HUGE = 3000
"""Topics in the largest of its requests."""

ANSWERED_WITHIN = 3.0

_WHOLE_ONLY = frozenset(
    {"UnregisterBroker", "UnregisterController", "AddRaftVoter", "RemoveRaftVoter", "UpdateFeatures", "ElectLeaders"}
)
"""APIs of which nothing malformed is sent: by chance it might be what takes a node away."""


def frame_of(version: int, request: object) -> bytes:
    """A request as it goes over the wire."""
    return request_bytes(version, 1, "fool", request)


def described() -> DescribeQuorumRequest:
    """The request of a monitor."""
    return DescribeQuorumRequest(topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData()])])


def forwarded_frames() -> dict[str, list[bytes]]:
    """API -> a request in each version, for the APIs that brokers forward to the controller. They change nothing."""
    found: dict[str, list[bytes]] = {}
    for key, entry in registrations(BROKER).items():
        if not entry.is_for_controller:
            continue
        name = API_KEYS[key].name
        request = described() if name == "DescribeQuorum" else entry.request_class()
        frames = found.setdefault(name, [])
        for version in range(entry.versions.lowest, entry.versions.highest + 1):
            try:
                frames.append(frame_of(version, request))
            except EncodeError:
                continue  # what it begins with cannot be said in this version
    return found


def malformed(rng: random.Random, frames: Mapping[str, list[bytes]] | None = None) -> bytes:
    """A request with some wrong bytes, or its end missing; of ``frames`` or of :func:`forwarded_frames`."""
    frames = frames or forwarded_frames()
    frame = bytearray(rng.choice(frames[rng.choice([name for name in sorted(frames) if name not in _WHOLE_ONLY])]))
    for _ in range(rng.randint(1, 4)):
        frame[rng.randrange(8, len(frame))] = rng.randrange(256)
    if rng.random() < 0.5:
        end = rng.randint(9, len(frame))
        frame = frame[:end]
        frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    return bytes(frame)


class FoolishClient:
    """``run`` it; it never ends by itself."""

    def __init__(self, client: ClusterClient, addresses: list[tuple[int, int]], rng: random.Random) -> None:
        """``addresses``: node and port, of those that it asks."""
        self._client = client
        self._addresses = addresses
        self._rng = rng
        self._frames = forwarded_frames()
        topics = [CreatableTopic(name=f"{number:030}", num_partitions=-1) for number in range(HUGE)]
        self._huge = [frame_of(version, CreateTopicsRequest(topics=topics, validate_only=True)) for version in (4, 7)]
        self.answers = 0

    async def run(self) -> None:
        """Ask 20 to 50 times a second, whether there is an answer or not."""
        rng = self._rng
        kinds: list[Callable[[], Awaitable[None]]] = [self._old, self._malformed, self._half, self._many, self._large]
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(rng.uniform(0.02, 0.05))
                (kind,) = rng.choices(kinds, (50, 20, 10, 20, 1))
                if len(nursery.child_tasks) < MOST_UNDERWAY:
                    nursery.start_soon(kind)

    def _any(self) -> bytes:
        return self._rng.choice(self._frames[self._rng.choice(sorted(self._frames))])

    async def _old(self) -> None:
        # Half of the time what monitors ask for.
        frames = self._frames["DescribeQuorum"] if self._rng.random() < 0.5 else [self._any()]
        await self._send(self._rng.choice(self._addresses), self._rng.choice(frames))

    async def _many(self) -> None:
        address = self._rng.choice(self._addresses)
        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(self._send, address, self._any())

    async def _large(self) -> None:
        await self._send(self._rng.choice(self._addresses), self._rng.choice(self._huge))

    async def _malformed(self) -> None:
        await self._send(self._rng.choice(self._addresses), malformed(self._rng, self._frames))

    async def _half(self) -> None:
        frame = self._any()
        await self._send(self._rng.choice(self._addresses), frame[: len(frame) // 2])

    async def _send(self, address: tuple[int, int], data: bytes) -> None:
        """Bytes on a connection of their own, and whatever comes back."""
        try:
            with trio.move_on_after(ANSWERED_WITHIN):
                stream = await self._client.connect(*address)
                try:
                    sent = 0
                    while sent < len(data):
                        try:
                            sent += stream.send(data[sent:])
                        except BlockingIOError:
                            await stream.wait_writable()
                    await stream.wait_readable()
                    self.answers += 1
                finally:
                    stream.close()
        except OSError:
            pass


def all_addresses(brokers: list[int], controllers: list[int]) -> list[tuple[int, int]]:
    """Every listener of a cluster; brokers more often."""
    return [(node, BROKER_PORT) for node in brokers] * 3 + [(node, CONTROLLER_PORT) for node in controllers]
