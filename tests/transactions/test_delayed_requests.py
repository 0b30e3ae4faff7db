"""Producers whose requests are lost, repeated and delayed, against the core and real logs (KAFKA-17754).

Each seed is a run of one transactional id: transactions of records in two partitions, committed, aborted or left by a
client that dies. Whatever the network does, with version 2 a transaction that the client saw committed is there whole,
once, and in order, one that it saw aborted is not, and one of which it does not know is there whole or not at all.
The same runs on version 1 show what the later version is for. KBROKER_TRANSACTION_SEEDS=20000 runs more of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from kbroker.cores.transactions.coordinator import MarkersToWrite, ProducerIdAndEpoch
from kbroker.cores.transactions.transaction import TV_0, TV_2
from kbroker.errors import ApiError
from kbroker.errors import ErrorCode as E
from kbroker.log import opening
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.partition_log import PartitionLog
from kbroker.log.validation import AppendOrigin
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.control_batch import build_end_txn_marker, parse_end_txn_marker
from kbroker.wire.record_batch import Record, build_batch, iter_records
from tests.transactions.transaction_harness import P0, P1, Shard

SEEDS = int(os.environ.get("KBROKER_TRANSACTION_SEEDS", "200"))
NOW_MS = 1_700_000_000_000


class Lost(Exception):
    """No answer came."""


class Cluster(Shard):
    """The coordinator, and two partitions with logs of their own."""

    def __init__(self, version: int, rng: random.Random) -> None:
        self.logs: dict[TopicPartition, PartitionLog] = {}
        super().__init__(version)
        disk = FakeDisk()
        disk.make_dirs("/data")
        for each in (P0, P1):
            self.logs[each] = opening.open_log(f"/data/{each}", each, None, LogConfig(), disk, now_ms=NOW_MS)
        self._rng = rng
        self._late: list[Callable[[], Any]] = []
        self.calm = False

    def _write(self, markers: MarkersToWrite) -> None:
        errors = {}
        for each in markers.partitions:
            if not self.calm and self._rng.random() < 0.1:
                errors[each] = E.NOT_LEADER_OR_FOLLOWER  # it is moving, and tried again later
                continue
            batch = build_end_txn_marker(
                commit=markers.commit,
                producer_id=markers.producer_id,
                producer_epoch=markers.producer_epoch,
                coordinator_epoch=0,
                timestamp_ms=NOW_MS,
            )
            log = self.logs[each]
            try:
                log.append_as_leader(
                    bytearray(batch),
                    0,
                    now_ms=NOW_MS,
                    origin=AppendOrigin.COORDINATOR,
                    transaction_version=markers.transaction_version,
                )
                log.on_high_watermark_updated(log.log_end_offset)
                errors[each] = E.NONE
            except ApiError as error:
                errors[each] = error.code
        self._store(self.core.on_markers_written(markers, errors, self.now_ms))

    def produce(self, producer: ProducerIdAndEpoch, partition: TopicPartition, sequence: int, value: bytes) -> None:
        """Append a batch of a transaction in the steps of ``node.replicas.produce_writer``."""
        log = self.logs[partition]
        guard = log.producers.maybe_start_verification(
            producer.producer_id, sequence, producer.producer_epoch, self.version >= TV_2, self.now_ms
        )
        if guard is not None:
            if self.version >= TV_2:
                self.add(producer, partition)
            elif self.verify(producer, partition) != [E.NONE]:
                raise ApiError(E.INVALID_TXN_STATE)
        batch = build_batch(
            [Record(0, NOW_MS, None, value)],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        log.append_as_leader(bytearray(batch), 0, now_ms=NOW_MS, verification_guard=guard)

    # The network

    def ask(self, call: Callable[[], Any]) -> Any:
        """Deliver a request, or lose or delay it or its answer. `ApiError` is an answer, `Lost` is none."""
        self._deliver_late()
        self.advance(self._rng.choice((0, 10, 200)))
        fate = self._rng.random() if not self.calm else 1.0
        if fate < 0.08:
            self._late.append(call)
            raise Lost
        if fate < 0.16:
            self._quietly(call)
            raise Lost
        if fate < 0.22:
            self._late.append(call)  # the network has it twice
        return call()

    def _deliver_late(self) -> None:
        for call in [each for each in self._late if self._rng.random() < 0.3]:
            self._late.remove(call)
            self._quietly(call)

    @staticmethod
    def _quietly(call: Callable[[], Any]) -> None:
        try:
            call()
        except ApiError:
            pass

    def settle(self) -> None:
        """All that is under way arrives, and time does the rest."""
        while self._late:
            self._deliver_late()
        self.calm = True
        for _ in range(5):
            self.advance(1_000_000)

    def committed(self) -> dict[TopicPartition, list[bytes]]:
        """The records that a read_committed consumer gets, by partition."""
        found: dict[TopicPartition, list[bytes]] = {}
        for partition, log in self.logs.items():
            assert log.first_unstable_offset is None, "an open transaction hangs"
            pending: dict[int, list[tuple[int, bytes]]] = {}
            kept: list[tuple[int, bytes]] = []
            data = log.read_bytes(0, 1 << 24)
            for position, header in walk_headers(data):
                if header.is_control:
                    marker = parse_end_txn_marker(data, position)
                    written = pending.pop(header.producer_id, [])
                    if marker is not None and marker.commit:
                        kept += written
                    continue
                pending.setdefault(header.producer_id, []).extend(
                    (record.offset, bytes(record.value or b"")) for record in iter_records(data, position)
                )
            found[partition] = [value for _, value in sorted(kept)]
        return found


@dataclass
class Attempt:
    """A transaction as its client saw it; None where it does not know how it ended."""

    number: int
    acknowledged: list[tuple[TopicPartition, bytes]] = field(default_factory=list)
    committed: bool | None = None


class Fenced(Exception):
    """The client has to begin anew."""


class Client:
    """A producer that behaves: it asks again until it is answered, and gives up what it is told to give up."""

    RETRIABLE = (E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_ENOUGH_REPLICAS)

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self.attempts: list[Attempt] = []
        self._producer = ProducerIdAndEpoch(-1, -1)
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()

    def _until_answered(self, call: Callable[[], Any]) -> Any:
        for _ in range(200):
            try:
                return self._cluster.ask(call)
            except Lost:
                continue
            except ApiError as error:
                if error.code not in self.RETRIABLE:
                    raise Fenced from error
                self._cluster.advance(100)
        raise AssertionError("nothing is ever answered")

    def begin_anew(self) -> None:
        while True:
            try:
                self._producer = self._until_answered(lambda: self._cluster.init(timeout_ms=300_000))
            except Fenced:
                continue
            self._sequences, self._added = {}, set()
            return

    def transaction(self, number: int) -> None:
        attempt = Attempt(number)
        self.attempts.append(attempt)
        try:
            for index in range(self._rng.randrange(1, 5)):
                self._send(attempt, self._rng.choice((P0, P1)), index)
            if self._rng.random() < 0.1:
                raise Fenced  # the client dies
            self._end(attempt, self._rng.random() < 0.8)
        except Fenced:
            self.begin_anew()

    def _send(self, attempt: Attempt, partition: TopicPartition, index: int) -> None:
        cluster, producer = self._cluster, self._producer
        if cluster.version < TV_2 and partition not in self._added:
            self._until_answered(lambda: cluster.add(producer, partition))
            self._added.add(partition)
        sequence = self._sequences.get(partition, 0)
        value = b"%d.%d" % (attempt.number, index)
        self._until_answered(lambda: cluster.produce(producer, partition, sequence, value))
        self._sequences[partition] = sequence + 1
        attempt.acknowledged.append((partition, value))

    def _end(self, attempt: Attempt, commit: bool) -> None:
        cluster, producer = self._cluster, self._producer
        given = self._until_answered(lambda: cluster.end(producer, commit))
        attempt.committed = commit
        self._added = set()
        if cluster.version >= TV_2:
            self._producer, self._sequences = given, {}


def anomalies(seed: int, version: int) -> list[str]:
    """The anomalies of a run."""
    rng = random.Random(seed)
    cluster = Cluster(version, rng)
    client = Client(cluster, rng)
    client.begin_anew()
    for number in range(25):
        client.transaction(number)
    cluster.settle()
    found = cluster.committed()
    wrong = []
    for attempt in client.attempts:
        prefix = b"%d." % attempt.number
        for partition in (P0, P1):
            acknowledged = [value for where, value in attempt.acknowledged if where == partition]
            read = [value for value in found[partition] if value.startswith(prefix)]
            if attempt.committed is True and read != acknowledged:
                wrong.append(f"transaction {attempt.number} in {partition}: committed {acknowledged}, read {read}")
            if attempt.committed is False and read:
                wrong.append(f"transaction {attempt.number} in {partition}: aborted, and read {read}")
        if attempt.committed is None:
            seen = [value for partition in (P0, P1) for value in found[partition] if value.startswith(prefix)]
            if seen and not {value for _, value in attempt.acknowledged} <= set(seen):
                wrong.append(f"transaction {attempt.number}: read in part, {seen} of {attempt.acknowledged}")
    for partition in (P0, P1):
        numbers = [tuple(map(int, value.split(b"."))) for value in found[partition]]
        if numbers != sorted(set(numbers)):
            wrong.append(f"{partition}: out of order or twice: {numbers}")
    return wrong


@pytest.mark.parametrize("block", range(5))
def test_with_version_2_nothing_late_does_harm(block: int) -> None:
    seeds = range(block * SEEDS // 5, (block + 1) * SEEDS // 5)
    wrong = {seed: found for seed in seeds if (found := anomalies(seed, TV_2))}
    assert not wrong


def test_the_same_runs_show_the_anomalies_of_version_1() -> None:
    # If they did not, the runs above would prove nothing.
    assert any(anomalies(seed, TV_0) for seed in range(40))
