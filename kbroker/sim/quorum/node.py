"""One replica of the metadata log in a simulation: the real core and log, a driver that takes simulated time.

Its driver does the same as ``node.controller.raft_runner``: it carries out a ``Ready`` field by field, and calls the
core again only when all of it is done. A node may die between any two fields.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple, Protocol

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.raft.core import RaftCore
from kbroker.raft_metadata.raft.messages import (
    InboundRequest,
    KRaftVersions,
    KRaftVersionsResult,
    Node,
    OutboundRequest,
    RaftRequest,
    RaftResponse,
    Reply,
)
from kbroker.raft_metadata.raft.replicated_log import ReplicatedLog
from kbroker.raft_metadata.raft.snapshot import encode_snapshot
from kbroker.raft_metadata.raft.types import RaftConfig, Ready
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterEndpoint, VoterSet
from kbroker.sim.quorum.datagrams import SimNetwork
from kbroker.sim.quorum.disk import FileSimDisk, SimDisk
from kbroker.sim.world import EventQueue, Trace
from kbroker.types import OffsetAndEpoch
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.records.metadata import ConfigRecord

LISTENER = "CONTROLLER"
TIMESTAMP_MS = 1_700_000_000_000


def address_of(node_id: int) -> VoterEndpoint:
    """Where a simulated node listens."""
    return VoterEndpoint(f"node{node_id}", 9093)


class Batch(NamedTuple):
    """A batch in the log, as far as two logs are compared by it."""

    base_offset: int
    last_offset: int
    epoch: int
    crc: int


def batches_of(data: bytes) -> list[Batch]:
    """The batches in what a log gives out."""
    return [
        Batch(header.base_offset, header.last_offset, header.partition_leader_epoch, header.crc)
        for _, header in walk_headers(data)
    ]


class RaftWorld(Protocol):
    """The surroundings of a node: time, network, the other nodes, and an observer of its steps."""

    @property
    def clock(self) -> EventQueue[int]: ...
    @property
    def network(self) -> SimNetwork: ...
    @property
    def trace(self) -> Trace: ...
    @property
    def bootstrap_ids(self) -> list[int]: ...

    def node_at(self, address: VoterEndpoint) -> SimRaftNode:
        """The node that listens at an address."""

    def on_step(self, node: SimRaftNode, ready: Ready) -> None:
        """A node has acted on a ``Ready``."""

    def on_applied(self, node: SimRaftNode, batch: Batch) -> None:
        """A node takes a batch for committed."""

    def on_snapshot_loaded(self, node: SimRaftNode) -> None:
        """A node goes on from a snapshot."""


class SimRaftNode:
    """A node, whether it runs or not; ``disk`` is what stays when it dies."""

    def __init__(
        self,
        cluster: RaftWorld,
        key: ReplicaKey,
        static_voters: VoterSet | None,
        config: RaftConfig,
        max_disk_latency_ms: int,
        rng: random.Random,
        *,
        files: bool = False,
    ) -> None:
        self.cluster = cluster
        self.key = key
        self.static_voters = static_voters
        self.config = config
        self.rng = rng
        self.disk = (FileSimDisk if files else SimDisk)(rng, max_disk_latency_ms)
        self.life = 0
        """The number of times that it was started."""
        self.running = False
        self.clock_offset_ms = 0
        self.applied_offset = 0
        """All below is applied to ``state``."""
        self.applied_epoch = 0
        self.state = b""
        """A digest of all that is applied; two nodes with the same log have the same one at an offset."""
        self.core: RaftCore
        self.log: ReplicatedLog
        self._inbox: deque[Callable[[int], Ready]] = deque()
        self._busy = False
        self._flushing = False
        self._timer_at: float = -1
        self._next_token = 0
        self._callers: dict[int, Callable[[RaftResponse], None]] = {}

    @property
    def id(self) -> int:
        """The node id."""
        return self.key.id

    def now_ms(self) -> int:
        """This node's monotonic clock: no two nodes agree in it."""
        return self.cluster.clock.time + self.clock_offset_ms

    # Life

    def start(self) -> None:
        """Start with what is on the disk."""
        assert not self.running
        self.life += 1
        self.running = True
        self.clock_offset_ms = self.rng.randrange(1_000_000)
        self.log = ReplicatedLog(self.disk.store, self.disk.snapshots, self.static_voters, self.disk.promises)
        self.core = RaftCore(
            self.key,
            self.log,
            self.rng,
            config=self.config,
            election_state=self.disk.election,
            bootstrap=[Node(-2 - at, address_of(other)) for at, other in enumerate(self.cluster.bootstrap_ids)],
            local_endpoints={LISTENER: address_of(self.id)},
            listener_name=LISTENER,
        )
        self._inbox.clear()
        self._callers.clear()
        self._busy = self._flushing = False
        self._timer_at = -1
        self.applied_offset, self.applied_epoch, self.state = 0, 0, b""
        latest = self.log.latest_snapshot_id
        if latest is not None and latest.offset > 0:
            self._load_snapshot(latest)
        self.cluster.trace.note(f"n{self.id} starts, log ends at {self.log.end_offset} {self.disk.election}")
        self.disk.is_damaged = not self.log.is_whole
        self._call(self.core.start)

    def damage(self) -> None:
        """Damage the log of a node that is down."""
        assert not self.running
        self.cluster.trace.note(f"n{self.id} is damaged: {self.disk.damage()}")

    def kill(self) -> None:
        """The power fails."""
        if self.running:
            self.running = False
            self.disk.crash()
            self.cluster.trace.note(f"n{self.id} dies, log ends at {self.disk.store.log_end_offset}")

    def stop(self) -> None:
        """Hand over leadership; the owner kills the node a little later."""
        self._call(self.core.stop)

    # The driver

    def _call(self, call: Callable[[int], Ready]) -> None:
        self._inbox.append(call)
        if not self._busy:
            self._drain()

    def _drain(self) -> None:
        while self._inbox and not self._busy and self.running:
            self._act(self._inbox.popleft()(self.now_ms()))
        if self.running and not self._busy:
            self._set_timer()

    def _act(self, ready: Ready) -> None:
        """First what needs the election state to be durable, then the log, then all the others hear of."""
        if ready.election_state is None:
            self._act_on_log(ready)
            return
        self.disk.begin_election(ready.election_state)

        def written() -> None:
            self.disk.end_election()
            self._act_on_log(ready)

        self._later(written)

    def _act_on_log(self, ready: Ready) -> None:
        log = self.log
        if ready.append:
            log.append_control(ready.append, self.core.epoch, timestamp_ms=TIMESTAMP_MS)
        if ready.truncate_to is not None:
            log.truncate_to(ready.truncate_to)
        if ready.snapshot is not None:
            chunk = ready.snapshot
            log.write_snapshot_chunk(chunk.snapshot_id, chunk.position, chunk.data)
            if chunk.is_last:
                log.install_snapshot(chunk.snapshot_id, log.finish_snapshot(chunk.snapshot_id))
        if ready.records:
            fault = log.append_fetched(ready.records, self.core.epoch)
            if fault is not None:
                self.cluster.trace.note(f"n{self.id} refuses records: {fault}")
        if not ready.flush:
            self._finish(ready)
            return
        work = log.begin_flush()

        def flushed() -> None:
            if work is not None:
                work.run()
                work.end()
            self._finish(ready)

        self._later(flushed)

    def _later(self, step: Callable[[], None]) -> None:
        """Go on when the disk is done, unless the node dies before."""
        delay, life = self.disk.latency_ms(), self.life
        if delay == 0:
            step()
            return
        self._busy = True

        def done() -> None:
            if self.running and self.life == life:
                self._busy = False
                step()
                self._drain()

        self.cluster.clock.call_at(self.cluster.clock.time + delay, done)

    def _finish(self, ready: Ready) -> None:
        if ready.regained:
            self.log.regain()
            self.disk.is_damaged = False
        for request in ready.send:
            self._send(request)
        for response in ready.respond:
            caller = self._callers.pop(response.token, None)
            if caller is not None:
                caller(response.response)
        if ready.high_watermark is not None:
            self._apply(ready.high_watermark)
        self.cluster.on_step(self, ready)
        if not self.running:
            return
        if ready.flush:
            self._act(self.core.on_flushed(self.log.end_offset, self.now_ms()))
        elif ready.append:
            self._act(self.core.on_appended(self.now_ms()))
            self._start_flush()

    def _start_flush(self) -> None:
        """The leader's own flushes run beside everything else."""
        if self._flushing or not self.running:
            return
        self._flushing = True
        life, end_offset, truncations = self.life, self.log.end_offset, self.log.truncations
        work = self.log.begin_flush()

        def done() -> None:
            if not self.running or self.life != life:
                return
            self._flushing = False
            if work is not None:
                work.run()
                work.end()
            if self.log.truncations == truncations:
                self._call(lambda now_ms: self.core.on_flushed(end_offset, now_ms))
            if self.core.is_leader and self.log.end_offset > self.core.flushed_offset:
                self._start_flush()

        self.cluster.clock.call_at(self.cluster.clock.time + self.disk.latency_ms(), done)

    def _set_timer(self) -> None:
        deadline = self.core.next_deadline()
        if deadline == float("inf") or (0 <= self._timer_at <= deadline):
            return
        self._timer_at = deadline
        life = self.life

        def due() -> None:
            if not self.running or self.life != life or self._timer_at != deadline:
                return
            self._timer_at = -1
            self._call(self.core.tick if self.now_ms() >= self.core.next_deadline() else _nothing)

        clock = self.cluster.clock
        clock.call_at(max(int(deadline) - self.clock_offset_ms, clock.time), due)

    # The others

    def _send(self, request: OutboundRequest) -> None:
        cluster, life = self.cluster, self.life
        destination = cluster.node_at(request.destination.address)
        if cluster.trace.is_shown:
            cluster.trace.note(f"n{self.id}>n{destination.id} {request.correlation_id} {request.request}")

        def answer(response: RaftResponse | None, refused: bool) -> None:
            def arrive() -> None:
                if self.running and self.life == life:
                    reply = Reply(request.correlation_id, request.destination, response, refused)
                    self._call(lambda now_ms: self.core.receive(reply, now_ms))

            cluster.network.carry(destination.id, self.id, arrive)

        def deliver() -> None:
            destination.take_request(request, answer)

        cluster.network.carry(self.id, destination.id, deliver)

    def take_request(self, request: OutboundRequest, answer: Callable[[RaftResponse | None, bool], None]) -> None:
        """A request has arrived; ``answer(response, refused)`` sends the response back."""
        if not self.running:
            answer(None, True)
            return
        if isinstance(request.request, KRaftVersions):  # ApiVersions, which is not the core's business
            answer(KRaftVersionsResult(ErrorCode.NONE, 0, 1), False)
            return
        self._next_token += 1
        token = self._next_token

        def respond(response: RaftResponse) -> None:
            if self.cluster.trace.is_shown:
                self.cluster.trace.note(f"n{self.id} answers {request.correlation_id} {response}")
            answer(response, False)

        self._callers[token] = respond
        self._call(lambda now_ms: self.core.receive(InboundRequest(token, request.request), now_ms))

    # The state machine

    @property
    def is_active(self) -> bool:
        """Whether this node takes records: it leads, and has committed a record of its epoch."""
        return self.running and self.core.leader is not None and self.core.leader.high_watermark >= 0

    def append(self, value: int) -> OffsetAndEpoch | None:
        """Append a record if this is the active leader; where it is."""
        if not self.is_active or self._busy:
            return None
        record = ConfigRecord(resource_type=2, resource_name="sim", name="value", value=str(value))
        last = self.log.append_records([record], self.core.epoch, timestamp_ms=TIMESTAMP_MS, metadata_version=30)
        self._call(self.core.on_appended)
        self._start_flush()
        return last

    def ask(self, request: RaftRequest, on_response: Callable[[RaftResponse], None]) -> None:
        """An administrator's request, over a perfect wire."""
        self._next_token += 1
        token = self._next_token
        self._callers[token] = on_response
        self._call(lambda now_ms: self.core.receive(InboundRequest(token, request), now_ms))

    def _apply(self, high_watermark: int) -> None:
        log = self.log
        if self.applied_offset < log.start_offset:
            latest = log.latest_snapshot_id
            assert latest is not None
            self._load_snapshot(latest)
        while self.applied_offset < high_watermark:
            data = log.read_bytes(self.applied_offset, 1 << 20)
            assert data, f"committed data is missing on node {self.id} at {self.applied_offset}"
            for batch in batches_of(data):
                if batch.base_offset >= high_watermark:
                    break
                self.state = next_state(self.state, batch)
                self.applied_offset, self.applied_epoch = batch.last_offset + 1, batch.epoch
                self.cluster.on_applied(self, batch)

    def _load_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        record = self.log.load_snapshot(snapshot_id).records[0]
        assert isinstance(record, ConfigRecord) and record.value is not None
        self.state = bytes.fromhex(record.value)
        self.applied_offset, self.applied_epoch = snapshot_id
        self.cluster.on_snapshot_loaded(self)

    def write_snapshot(self) -> None:
        """Write what is applied as a snapshot, and forget the log below."""
        snapshot_id = OffsetAndEpoch(self.applied_offset, self.applied_epoch)
        if not self.running or self._busy or snapshot_id.offset <= self.log.start_offset:
            return
        state = ConfigRecord(resource_type=2, resource_name="sim", name="state", value=self.state.hex())
        data = encode_snapshot(
            [state],
            epoch=snapshot_id.epoch,
            now_ms=TIMESTAMP_MS,
            last_contained_log_timestamp=TIMESTAMP_MS,
            kraft_version=self.log.kraft_version_at(snapshot_id.offset - 1),
            voters=self.log.voters.at(snapshot_id.offset - 1),
        )
        self.disk.snapshots.write(snapshot_id, data)
        self.log.on_snapshot_written(snapshot_id, TIMESTAMP_MS)
        self.cluster.trace.note(f"n{self.id} writes snapshot {snapshot_id.offset}-{snapshot_id.epoch}")


def next_state(state: bytes, batch: Batch) -> bytes:
    """The digest after one more batch."""
    return blake2b(b"%b%d %d %d" % (state, batch.base_offset, batch.epoch, batch.crc), digest_size=12).digest()


def _nothing(now_ms: int) -> Ready:
    return Ready()
