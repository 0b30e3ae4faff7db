"""Simulated members of consumer groups: many in one thread, each a connection with at most one request under way.

They do what a consumer does about its group and nothing else, in both protocols, and they heartbeat far more often than
clients do, so that it is the coordinator that is measured and not the wait for the next heartbeat. Every partition is
entered with its owner; two at a time are an error.
"""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.clients import LoadError
from kbroker.sim.classic_group_clients import (
    ASSIGNOR,
    assigned,
    heartbeat_request,
    join_request,
    shares,
    subscription,
    sync_request,
)
from kbroker.types import Uuid
from kbroker.wire.conversation import Conversation
from kbroker.wire.framing import FrameReader
from kbroker.wire.messages.classic_groups import LeaveGroupRequest
from kbroker.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions

HEARTBEAT_SECONDS = 0.05
NOT_READY = frozenset({14, 15, 16})
"""The coordinator loads, is not available, or is another: what passes."""
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, FENCED_EPOCH = 22, 25, 27, 110


class Loop:
    """Sockets and timers of one thread."""

    def __init__(self, host: str, port: int) -> None:
        self.address = (host, port)
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call once after that time."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), call))

    def run_until(self, condition: Callable[[], bool], what: str, timeout: float = 60) -> None:
        """Work until the condition holds. Raises LoadError."""
        deadline = time.monotonic() + timeout
        while not condition():
            now = time.monotonic()
            if now > deadline:
                raise LoadError(f"not within {timeout} s: {what}")
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()
            wait = self._timers[0][0] - now if self._timers else 0.1
            for key, _ in self._selector.select(max(0.0, min(wait, 0.1))):
                key.data()

    def open(self) -> Wire:
        """A new connection."""
        wire = Wire(self.address)
        self._selector.register(wire.socket, selectors.EVENT_READ, wire.readable)
        return wire

    def close(self, wire: Wire) -> None:
        """Close a connection; what was under way on it is forgotten."""
        self._selector.unregister(wire.socket)
        wire.socket.close()

    def close_all(self) -> None:
        """Close every connection that is open, and the loop."""
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()


class Wire:
    """A connection; responses come in the order of the requests."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._conversation = Conversation("benchmark")
        self._reader = FrameReader(api_keys=None)
        self._waiting: deque[Callable[[Any], None]] = deque()

    def ask(self, request: Any, version: int, then: Callable[[Any], None]) -> None:
        """Send a request; `then` is called with its response."""
        self._waiting.append(then)
        # A request fits into the socket's buffer: few are under way.
        self.socket.sendall(b"".join(self._conversation.send(request, version)))

    def readable(self) -> None:
        """Take what has come. Raises LoadError when the broker has closed the connection."""
        count = self.socket.recv_into(self._reader.get_buffer())
        if not count:
            raise LoadError("the broker closed a member's connection")
        self._reader.buffer_updated(count)
        for frame in self._reader:
            self._waiting.popleft()(self._conversation.receive(frame))


class Group:
    """A group, and who owns what in it."""

    def __init__(self, name: str, topic: str, topic_id: Uuid, partitions: int) -> None:
        self.name, self.topic, self.topic_id, self.partitions = name, topic, topic_id, partitions
        self.owners: dict[int, Member] = {}
        self.by_generation: dict[int, dict[int, Member]] = {}
        self.members: list[Member] = []

    def take(self, member: Member, partitions: set[int], generation: int | None = None) -> None:
        """`member` owns these from now on. Raises LoadError where another does."""
        for partition in partitions - member.owned:
            if self.owners.setdefault(partition, member) is not member:
                raise LoadError(f"partition {partition} of {self.name} has two owners")
            if generation is not None:
                given = self.by_generation.setdefault(generation, {})
                if given.setdefault(partition, member) is not member:
                    raise LoadError(f"partition {partition} of {self.name} was given twice in generation {generation}")
        member.owned |= partitions

    def give(self, member: Member, partitions: set[int]) -> None:
        """`member` owns these no longer."""
        for partition in partitions:
            if self.owners.get(partition) is member:
                del self.owners[partition]
        member.owned -= partitions

    def is_settled(self) -> bool:
        """Whether every member has its share of all partitions and nothing is going on."""
        counts = [len(member.owned) for member in self.members]
        return (
            sum(counts) == self.partitions
            and max(counts) - min(counts) <= 1
            and all(member.is_stable for member in self.members)
            and len({member.generation for member in self.members}) == 1
        )


class Member:
    """A group member of either protocol."""

    def __init__(self, loop: Loop, group: Group, wire: Wire | None = None, heartbeats: bool = True) -> None:
        self.owned: set[int] = set()
        self.is_stable = False
        self.generation = -1
        self.member_id = ""
        self._loop, self._group, self._heartbeats = loop, group, heartbeats
        self.wire = wire or loop.open()
        self._left = False
        self.finished = False
        group.members.append(self)

    def join(self) -> None:
        """Begin to join."""
        raise NotImplementedError

    def heartbeat(self, then: Callable[[Any], None] | None = None) -> None:
        """Tell that it lives; `then` takes the answer instead of the member."""
        raise NotImplementedError

    def leave(self) -> None:
        """Leave as soon as no request is under way; `finished` tells when that is answered."""
        raise NotImplementedError

    def _retry(self) -> None:
        self._loop.later(0.05, self.join)

    def _on_left(self, response: Any) -> None:
        if response.error_code:
            raise LoadError(f"leaving: error {response.error_code}")
        self.finished = True


class ClassicMember(Member):
    """JoinGroup, SyncGroup, Heartbeat, LeaveGroup; eager, as the stock assignors range and round robin are."""

    session_timeout_ms = 300_000

    def join(self) -> None:
        self._group.give(self, set(self.owned))
        self.is_stable = False
        self.wire.ask(
            join_request(
                self._group.name,
                self.member_id,
                [(ASSIGNOR, subscription(self._group.topic))],
                session_timeout_ms=self.session_timeout_ms,
                rebalance_timeout_ms=60_000,
            ),
            3,
            self._on_joined,
        )

    def _on_joined(self, response: Any) -> None:
        if response.error_code in NOT_READY:
            self._retry()
            return
        if response.error_code == UNKNOWN_MEMBER:
            self.member_id = ""
            self.join()
            return
        if response.error_code:
            raise LoadError(f"JoinGroup: error {response.error_code}")
        self.member_id, self.generation = response.member_id, response.generation_id
        given = shares(self._group.topic, self._group.partitions, response)
        self.wire.ask(sync_request(self._group.name, self.generation, self.member_id, given), 2, self._on_synced)

    def _on_synced(self, response: Any) -> None:
        if response.error_code == REBALANCING:
            self.join()
            return
        if response.error_code in (ILLEGAL_GENERATION, UNKNOWN_MEMBER):
            self.join()
            return
        if response.error_code:
            raise LoadError(f"SyncGroup: error {response.error_code}")
        self._group.take(self, set(assigned(response.assignment)), self.generation)
        self.is_stable = True
        if self._left:
            self._leave_now()
        elif self._heartbeats:
            self._loop.later(HEARTBEAT_SECONDS, self.heartbeat)

    def heartbeat(self, then: Callable[[Any], None] | None = None) -> None:
        if self._left:
            self._leave_now()
            return
        self.wire.ask(
            heartbeat_request(self._group.name, self.generation, self.member_id), 3, then or self._on_heartbeat
        )

    def _on_heartbeat(self, response: Any) -> None:
        if self._left:
            self._leave_now()
        elif response.error_code in (REBALANCING, ILLEGAL_GENERATION, UNKNOWN_MEMBER):
            self.join()
        elif response.error_code:
            raise LoadError(f"Heartbeat: error {response.error_code}")
        else:
            self._loop.later(HEARTBEAT_SECONDS, self.heartbeat)

    def leave(self) -> None:
        self._left = True

    def _leave_now(self) -> None:
        self._group.give(self, set(self.owned))
        self.wire.ask(LeaveGroupRequest(group_id=self._group.name, member_id=self.member_id), 1, self._on_left)

    def _on_left(self, response: Any) -> None:
        super()._on_left(response)
        self._loop.close(self.wire)


class ConsumerMember(Member):
    """ConsumerGroupHeartbeat: gives partitions up at once when told to, and says so at once."""

    def __init__(self, loop: Loop, group: Group, wire: Wire | None = None, heartbeats: bool = True) -> None:
        super().__init__(loop, group, wire, heartbeats)
        self.member_id = str(uuid.uuid4())
        self._epoch = 0
        self._said: set[int] | None = None

    def join(self) -> None:
        self._group.give(self, set(self.owned))
        self._epoch, self._said = 0, set()
        self.is_stable = False
        self.wire.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self._group.name,
                member_id=self.member_id,
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=[self._group.topic],
                topic_partitions=[],
            ),
            1,
            self._on_heartbeat,
        )

    def heartbeat(self, then: Callable[[Any], None] | None = None) -> None:
        # It says what it owns where that has changed.
        if self._left:
            self._leave_now()
            return
        owned = None
        if self._said != self.owned:
            self._said = set(self.owned)
            one = HeartbeatTopicPartitions(topic_id=self._group.topic_id, partitions=sorted(self.owned))
            owned = [one] if self.owned else []
        self.wire.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self._group.name, member_id=self.member_id, member_epoch=self._epoch, topic_partitions=owned
            ),
            1,
            then or self._on_heartbeat,
        )

    def _on_heartbeat(self, response: Any) -> None:
        if response.error_code in NOT_READY:
            self._retry()
            return
        if response.error_code in (UNKNOWN_MEMBER, FENCED_EPOCH):
            self.join()
            return
        if response.error_code:
            raise LoadError(f"ConsumerGroupHeartbeat: error {response.error_code} {response.error_message}")
        self._epoch = response.member_epoch
        revoked = False
        if response.assignment is not None:
            mine = {index for each in response.assignment.topic_partitions for index in each.partitions}
            revoked = bool(self.owned - mine)
            self._group.give(self, self.owned - mine)
            self._group.take(self, mine)
        self.is_stable = True
        if self._left:
            self._leave_now()
        elif self._heartbeats:
            # As Kafka's consumer: what was taken from it is acknowledged at once.
            self._loop.later(0 if revoked else HEARTBEAT_SECONDS, self.heartbeat)

    def leave(self) -> None:
        self._left = True

    def _leave_now(self) -> None:
        self._group.give(self, set(self.owned))
        self.wire.ask(
            ConsumerGroupHeartbeatRequest(group_id=self._group.name, member_id=self.member_id, member_epoch=-1),
            1,
            self._on_left,
        )

    def _on_left(self, response: Any) -> None:
        super()._on_left(response)
        self._loop.close(self.wire)


PROTOCOLS: dict[str, type[ClassicMember] | type[ConsumerMember]] = {
    "classic": ClassicMember,
    "consumer": ConsumerMember,
}


def drop(members: Sequence[Member]) -> None:
    """Members that have left no longer count."""
    for member in members:
        member._group.members.remove(member)
