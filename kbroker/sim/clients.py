"""Clients of a simulated cluster: an idempotent producer and a consumer, which tell a history what they saw."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import trio

from kbroker.errors import ErrorCode
from kbroker.node.peers.peer import Peer, UnsupportedByPeer
from kbroker.sim.history import History
from kbroker.sim.world import Violation
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import BatchHeader, check_crc, walk_headers
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.control_batch import parse_end_txn_marker
from kbroker.wire.errors import WireError
from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kbroker.wire.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kbroker.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kbroker.wire.record_batch import iter_records

if TYPE_CHECKING:
    from kbroker.runtime.env import Stream
    from kbroker.sim.tcp import NodeNetwork

BROKER_PORT = 9092
CONTROLLER_PORT = 9093

_FAILURES = (OSError, WireError, UnsupportedByPeer, trio.TooSlowError)

BROKEN_SEQUENCE = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors that a producer with one batch under way gets only if something acknowledged is gone."""

RETRIABLE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)


Authority = Callable[[TopicPartition], tuple[int, int] | None]
"""The node that really leads a partition now and knows it, and its epoch; no client can know that. Another's answer may
be wrong, with Apache Kafka too: a leader that was paused or cut off does not know what it has missed."""


@dataclass(slots=True)
class Promptness:
    """The seconds that an answer may take at most, beyond what its request lets it wait, while nothing is wrong.

    A wake-up that gets lost costs a time-out, of a tenth of a second or of half a minute, and nothing else is wrong.
    """

    within: float = inf
    since: float = 0.0

    def expect(self, within: float) -> None:
        """Expect it of the requests that are sent from now on."""
        self.within, self.since = within, trio.current_time()

    def check(self, request: Any, began: float) -> None:
        """`Violation` if the request has been under way for too long."""
        took = trio.current_time() - began - getattr(request, "max_wait_ms", 0) / 1000
        if took > self.within and began >= self.since:
            raise Violation(f"{type(request).__name__} took {took:.3f} s more than it may, and nothing was wrong")


class ClusterClient:
    """Finds leaders and asks them; one request at a time to each node."""

    def __init__(
        self,
        name: str,
        network: NodeNetwork,
        node_ids: list[int],
        rng: random.Random,
        authority: Authority,
        promptness: Promptness,
    ) -> None:
        self.name = name
        self.authority = authority
        self.promptness = promptness
        self.rng = rng
        self._network = network
        self._node_ids = node_ids
        self._peers: dict[tuple[str, int], Peer] = {}
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}

    async def connect(self, node_id: int, port: int) -> Stream:
        """A connection of its own to a node. ``OSError``."""
        return await self._network.connect(f"node{node_id}", port)

    def any_node(self) -> int:
        """The id of a random broker."""
        return self.rng.choice(self._node_ids)

    async def ask(self, node_id: int, request: Any, version: int | None = None, timeout: float = 10.0) -> Any:
        """A node's response; None if none comes."""
        address = (f"node{node_id}", BROKER_PORT)
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = Peer(self._network, *address, client_id=self.name)
        began, response = trio.current_time(), None
        try:
            with trio.move_on_after(timeout):
                response = await peer.ask(request, version)
        except _FAILURES:
            pass
        self.promptness.check(request, began)
        return response

    async def leader(self, tp: TopicPartition) -> tuple[int, int] | None:
        """Node and leader epoch, as far as some node knows; None if there is no leader, or nobody to ask."""
        known = self._leaders.get(tp)
        if known is not None:
            return known
        request = MetadataRequest(topics=[MetadataRequestTopic(name=tp.topic)], allow_auto_topic_creation=False)
        response = await self.ask(self.any_node(), request, timeout=2.0)
        if response is None:
            return None
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.leader_id >= 0:
                    key = TopicPartition(topic.name, partition.partition_index)
                    self._leaders[key] = (partition.leader_id, partition.leader_epoch)
        return self._leaders.get(tp)

    def forget(self, tp: TopicPartition) -> None:
        """The leader is another, it seems."""
        self._leaders.pop(tp, None)

    async def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        configs: dict[str, str] | None = None,
        assignments: dict[int, list[int]] | None = None,
    ) -> None:
        """Create a topic, as often as it takes."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1 if assignments else partitions,
            replication_factor=-1 if assignments else replication_factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
                for index, ids in (assignments or {}).items()
            ],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        while True:
            request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
            response = await self.ask(self.any_node(), request)
            if response is not None and response.topics[0].error_code in (
                ErrorCode.NONE,
                ErrorCode.TOPIC_ALREADY_EXISTS,
            ):
                return
            await trio.sleep(0.2)

    async def reassign(self, tp: TopicPartition, replicas: list[int] | None) -> ErrorCode | None:
        """Have a partition moved to other brokers, or a move given up; the controller's word, None if there is none."""
        partition = ReassignablePartition(partition_index=tp.partition, replicas=replicas)
        topic = ReassignableTopic(name=tp.topic, partitions=[partition])
        response = await self.ask(
            self.any_node(), AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=[topic]), timeout=6.0
        )
        if response is None:
            return None
        return ErrorCode(response.error_code or response.responses[0].partitions[0].error_code)

    def close(self) -> None:
        """End all connections."""
        for peer in self._peers.values():
            peer.close()


class Consumer:
    """Reads a partition from its beginning, and on."""

    def __init__(
        self, client: ClusterClient, history: History, tp: TopicPartition, *, read_committed: bool = False
    ) -> None:
        self.tp = tp
        self.position = 0
        self.high_watermark = -1
        self.may_lose = False
        self._client = client
        self._history = history
        self._read_committed = read_committed
        self._bounds: dict[int, tuple[int, int]] = {}
        """High watermark and last stable offset last seen, by leader epoch."""
        self._latest = 0
        """The highest end of the partition that it was told."""

    async def run(self) -> None:
        """Read until cancelled; ask where the end is now and then."""
        while True:
            await self.poll()
            if self._client.rng.random() < 0.1:
                await self._ask_for_end()

    async def _ask_for_end(self) -> None:
        """Check that the end offset of ListOffsets does not go back, whoever leads (KIP-207)."""
        client, tp = self._client, self.tp
        found = await client.leader(tp)
        if found is None:
            return
        authority, at_least = client.authority(tp), max(self._latest, self.position)
        partition = ListOffsetsPartition(partition_index=tp.partition, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(self._read_committed),
            topics=[ListOffsetsTopic(name=tp.topic, partitions=[partition])],
        )
        response = await client.ask(found[0], request, timeout=5.0)
        if response is None:
            return
        answer = response.topics[0].partitions[0]
        code = ErrorCode(answer.error_code)
        if code != ErrorCode.NONE:
            if code not in RETRIABLE:
                raise Violation(f"{tp}: ListOffsets is answered {code.name}")
            client.forget(tp)
        elif authority is not None and authority[0] == found[0] and authority == client.authority(tp):
            if answer.offset < at_least:
                raise Violation(f"{tp}: leader {found[0]} says that it ends at {answer.offset}, after {at_least}")
            self._latest = answer.offset

    async def poll(self) -> bool:
        """Fetch once; False if no answer came."""
        client, tp = self._client, self.tp
        found = await client.leader(tp)
        if found is None:
            await trio.sleep(0.1)
            return False
        node_id, leader_epoch = found
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=int(self._read_committed),
            topics=[
                FetchTopic(
                    topic=tp.topic,
                    partitions=[
                        FetchPartition(
                            partition=tp.partition,
                            current_leader_epoch=leader_epoch,
                            fetch_offset=self.position,
                            partition_max_bytes=1 << 20,
                        )
                    ],
                )
            ],
        )
        response = await client.ask(node_id, request, version=12, timeout=5.0)
        if response is None:
            client.forget(tp)
            await trio.sleep(0.1)
            return False
        answer = response.responses[0].partitions[0]
        if answer.error_code:
            client.forget(tp)
            code = ErrorCode(answer.error_code)
            # One that has not heard of its successor knows no better, with Apache Kafka either; a client asks on.
            is_latest = leader_epoch >= max(self._bounds, default=0)
            if code == ErrorCode.OFFSET_OUT_OF_RANGE and is_latest and not self.may_lose:
                raise Violation(f"{tp}: node {node_id} says that {self.position}, read before, is out of range")
            if code != ErrorCode.OFFSET_OUT_OF_RANGE and code not in RETRIABLE:
                raise Violation(f"{tp}: a consumer was told {code.name}")
            await trio.sleep(0.1)
            return False
        self._check_bounds(leader_epoch, answer)
        if answer.records:
            bound = answer.last_stable_offset if self._read_committed else answer.high_watermark
            aborted = [(entry.first_offset, entry.producer_id) for entry in answer.aborted_transactions or ()]
            self._take(bytes(answer.records), bound, sorted(aborted))
        return True

    def _check_bounds(self, leader_epoch: int, answer: Any) -> None:
        high_watermark, stable = answer.high_watermark, answer.last_stable_offset
        before = self._bounds.get(leader_epoch, (0, 0))
        if high_watermark < before[0] or stable < before[1]:
            raise Violation(
                f"{self.tp}: in epoch {leader_epoch} high watermark and last stable offset went back from {before}"
                f" to {(high_watermark, stable)}"
            )
        if stable > high_watermark:
            raise Violation(f"{self.tp}: last stable offset {stable} above the high watermark {high_watermark}")
        self._bounds[leader_epoch] = (high_watermark, stable)
        self.high_watermark = high_watermark

    def _take(self, data: bytes, bound: int, aborted: list[tuple[int, int]]) -> None:
        aborting: set[int] = set()
        for start, header in self._batches(data):
            while aborted and aborted[0][0] <= header.last_offset:
                aborting.add(aborted.pop(0)[1])
            if header.is_control:
                marker = parse_end_txn_marker(data, start)
                if marker is not None and not marker.commit:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                self._take_batch(data, start, header, bound)
            self.position = max(self.position, header.next_offset)

    def _batches(self, data: bytes) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch, whose checksums a client verifies."""
        try:
            for start, header in walk_headers(data):
                check_crc(data, start, header)
                yield start, header
        except CorruptRecord as error:
            raise Violation(f"{self.tp}: at {self.position} a consumer was sent what is no batch: {error}") from error

    def _take_batch(self, data: bytes, start: int, header: BatchHeader, bound: int) -> None:
        for record in iter_records(data, start):
            if record.offset < self.position:
                continue
            if record.offset >= bound:
                raise Violation(f"{self.tp}: {record.offset} was shown, though only what is below {bound} may be")
            if record.offset != self.position and not self.may_lose:
                raise Violation(f"{self.tp}: after {self.position} comes {record.offset}")
            assert record.value is not None
            self._history.read(
                self.tp, record.offset, record.value, header.partition_leader_epoch, header.producer_epoch
            )
            self.position = record.offset + 1
