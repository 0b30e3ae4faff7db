"""Records out of a topic's partitions: fetches to all leaders at once, batches cut into records, markers left out."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from kbroker.client.batches import received_records
from kbroker.client.cluster import Client
from kbroker.client.connection import Connection
from kbroker.client.errors import ConnectionFailed, RequestTimedOut, ResponseError, known
from kbroker.client.topics import EARLIEST, list_offsets
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import BatchHeader, TimestampType, check_crc, walk_headers
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.control_batch import ControlRecordType, parse_control_record
from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from kbroker.wire.record_batch import Record, iter_records, iter_windows

DEFAULT_PARTITION_BYTES: Final = 1 << 20
DEFAULT_MAX_BYTES: Final = 16 << 20
DEFAULT_WAIT_MS: Final = 500
_TAKEN_BYTES: Final = 1 << 20
"""Of records that are cut out at once, where a reader fetches more: as objects they are a multiple of it."""

_NAMES_UP_TO: Final = 12
"""Fetch names topics up to this version; later ones have ids only."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one batch that are to be shown, in order; of a large batch there are several."""

    partition: int
    records: list[Record]
    timestamp_type: TimestampType


@dataclass(frozen=True, slots=True)
class Skipped:
    """Offsets that are gone: the log began later than the position."""

    partition: int
    wanted: int
    start: int


@dataclass(frozen=True, slots=True)
class _Fetched:
    """A partition's answer: its whole batches, by position, of which records from ``start`` to ``end`` are wanted.

    Behind them the reader goes on at ``reached``.
    """

    partition: int
    data: memoryview
    batches: list[tuple[int, BatchHeader]]
    start: int
    reached: int
    end: int | None
    aborted: list[tuple[int, int]]


class Reader:
    """Reads partitions of one topic from ``positions`` on.

    ``ends``: partition -> the offset before which to stop; a partition without one has no end. Read with ``poll`` until
    ``finished``. With ``read_committed`` the records of aborted transactions are left out, and those of open ones not
    read yet.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        positions: Mapping[int, int],
        *,
        ends: Mapping[int, int] | None = None,
        read_committed: bool = True,
        partition_bytes: int = DEFAULT_PARTITION_BYTES,
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_wait_ms: int = DEFAULT_WAIT_MS,
        min_bytes: int = 1,
        wants: Callable[[int, BatchHeader], bool] | None = None,
    ) -> None:
        """``min_bytes``: for fewer a leader waits as long as it may, but for the first records.

        ``wants``: whether a batch of a partition is cut into records; one that is not wanted is passed over.

        It is asked of batches alone that a reader would get all records of.
        """
        self._client = client
        self._topic = topic
        self._ends = dict(ends or {})
        self._read_committed = read_committed
        self._partition_bytes = partition_bytes
        self._max_bytes = max_bytes
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._wants = wants
        self._in_flight: dict[Connection, dict[int, int]] = {}
        self._failing_since: float | None = None
        self._short_since: dict[int, float] = {}
        """Partition -> since when its log ends before the offset at which to stop."""
        self._silent_since: dict[int, float] = {}
        """Partition -> since when nobody answers for it."""
        self.received_bytes = 0
        """Bytes of batches that came, as they were sent."""
        self._fetched = dict(positions)
        """Partition -> the next offset to fetch; those first from which nothing has come for longest."""
        self._coming: Iterator[tuple[Chunk, int]] = iter(())
        """Records that are fetched, and their bytes, as they are cut out of their batches."""
        self.positions = dict(positions)
        """Partition -> the next offset to read."""

    @property
    def finished(self) -> bool:
        """Whether every partition is read up to its end."""
        return not any(self._is_open(*position) for position in self.positions.items())

    def _is_open(self, partition: int, offset: int) -> bool:
        end = self._ends.get(partition)
        return end is None or offset < end

    def poll(self, timeout: float) -> list[Chunk | Skipped]:
        """The records that come within ``timeout`` seconds, as soon as some do; none if the reader is finished.

        Decompressed they are about a megabyte, or less where the reader fetches less; the others come with later calls.
        ``ClientError`` when a partition cannot be read for as long as the client's timeout.
        """
        deadline = time.monotonic() + timeout
        while True:
            there: list[Chunk | Skipped] = self._take_coming()
            if there:
                return there
            self._send_fetches()
            if not self._in_flight:
                return []
            for connection in self._readable(max(deadline - time.monotonic(), 0)):
                chunks = self._receive(connection)
                if chunks:
                    return chunks
            if time.monotonic() >= deadline or self.finished:
                return []

    @property
    def silent(self) -> set[int]:
        """The partitions that nobody has answered for as long as the client's timeout, while others are read."""
        since = time.monotonic() - self._client.timeout
        return {partition for partition, began in self._silent_since.items() if began <= since}

    def seek(self, partition: int, offset: int) -> None:
        """Go on at a later offset, or read a partition from there on that was not read before."""
        self._fetched[partition] = self.positions[partition] = offset

    def close(self) -> None:
        """Give up the fetches that are under way; the client connects to their brokers anew when it asks again."""
        for connection in self._in_flight:
            connection.close()
        self._in_flight.clear()

    # --- Requests ---------------------------------------------------------------------------------------------------

    def _send_fetches(self) -> None:
        """A fetch to each leader that owes no answer, for its partitions that are not finished."""
        busy = {partition for offsets in self._in_flight.values() for partition in offsets}
        wanted = [each for each, offset in self._fetched.items() if each not in busy and self._is_open(each, offset)]
        deadline = self._client.deadline()
        if any(self._client.leader(TopicPartition(self._topic, partition)) is None for partition in wanted):
            [topic] = self._client.refresh([self._topic], deadline)
            if topic.error_code:
                self._failed(ResponseError(topic.error_code, f"topic {self._topic}"))
        by_leader: dict[int, list[int]] = {}
        for partition in wanted:
            leader = self._client.leader(TopicPartition(self._topic, partition))
            if leader is not None:
                by_leader.setdefault(leader, []).append(partition)
                continue
            self._forget([partition])
            if not by_leader and not self._in_flight:
                self._failed(
                    ResponseError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {TopicPartition(self._topic, partition)}")
                )
        for leader, partitions in by_leader.items():
            try:
                connection = self._client.node(leader, deadline)
                if connection in self._in_flight:
                    continue
                offsets = {partition: self._fetched[partition] for partition in partitions}
                version = connection.version_for(FetchRequest, _NAMES_UP_TO)
                connection.send(self._request(offsets), version=version)
            except (ConnectionFailed, RequestTimedOut) as error:
                self._forget(partitions)
                self._failed(error)
                continue
            self._in_flight[connection] = offsets

    def _request(self, offsets: Mapping[int, int]) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes if self.received_bytes else 1,
            max_bytes=self._max_bytes,
            isolation_level=int(self._read_committed),
            topics=[
                FetchTopic(
                    topic=self._topic,
                    partitions=[
                        FetchPartition(
                            partition=partition, fetch_offset=offset, partition_max_bytes=self._partition_bytes
                        )
                        for partition, offset in offsets.items()
                    ],
                )
            ],
        )

    def _readable(self, timeout: float) -> list[Connection]:
        if len(self._in_flight) == 1:
            return list(self._in_flight)
        # One may have been lost by another question on it.
        there = [connection for connection in self._in_flight if connection.closed or connection.has_response]
        if there:
            return there
        with selectors.DefaultSelector() as selector:
            for connection in self._in_flight:
                selector.register(connection, selectors.EVENT_READ, connection)
            return [key.data for key, _ in selector.select(timeout)]

    def _receive(self, connection: Connection) -> list[Chunk | Skipped]:
        offsets = self._in_flight.pop(connection)
        patience = self._max_wait_ms / 1000 + self._client.timeout
        try:
            response: FetchResponse = connection.receive(time.monotonic() + patience)
        except (ConnectionFailed, RequestTimedOut) as error:
            self._forget(offsets)
            self._failed(error)
            return []
        if response.error_code:
            self._failed(ResponseError(response.error_code, connection.address))
            return []
        chunks: list[Chunk | Skipped] = []
        fetched: list[_Fetched] = []
        for topic in response.responses:
            for data in topic.partitions:
                if data.partition_index not in offsets:
                    continue
                if data.error_code:
                    chunks += self._problem(data.partition_index, data.error_code)
                    continue
                self._failing_since = None
                self._silent_since.pop(data.partition_index, None)
                self._check_length(data)
                if data.records:
                    self.received_bytes += len(data.records)
                    fetched.append(self._take(data))
        if fetched:
            # The leader works on the next fetch while this one is cut into records.
            self._send_fetches()
        self._coming = chain.from_iterable(self._chunks(entry) for entry in fetched)
        return chunks + self._take_coming()

    def _take_coming(self) -> list[Chunk | Skipped]:
        """Returns as many of the fetched records as are to be in memory at the same time."""
        taken: list[Chunk | Skipped] = []
        size = 0
        for chunk, chunk_bytes in self._coming:
            taken.append(chunk)
            size += chunk_bytes
            if size >= min(self._max_bytes, _TAKEN_BYTES):
                break
        return taken

    def _take(self, data: PartitionData) -> _Fetched:
        """Note the whole batches in a partition's answer, and go on after them."""
        partition, records = data.partition_index, received_records(data)
        start, end = self._fetched[partition], self._ends.get(partition)
        batches: list[tuple[int, BatchHeader]] = []
        for position, header in walk_headers(records):
            if header.next_offset <= self._fetched[partition]:
                continue
            if end is not None and header.base_offset >= end:
                self._fetched[partition] = end
                break
            batches.append((position, header))
            self._fetched[partition] = header.next_offset if end is None else min(header.next_offset, end)
        if batches:
            # Of a batch that is larger than may be fetched of a partition, only the first one that has any is sent.
            self._fetched[partition] = self._fetched.pop(partition)
        aborted = [(entry.first_offset, entry.producer_id) for entry in data.aborted_transactions or ()]
        return _Fetched(partition, records, batches, start, self._fetched[partition], end, aborted)

    def _chunks(self, fetched: _Fetched) -> Iterator[tuple[Chunk, int]]:
        start, end, partition = fetched.start, fetched.end, fetched.partition
        aborted = AbortedTransactions(fetched.aborted) if self._read_committed else None
        for position, header in fetched.batches:
            is_part = start > header.base_offset or (end is not None and header.next_offset > end)
            try:
                for records, size in self._records(fetched, position, header, aborted, is_part=is_part):
                    shown, first = list(records), self.positions[partition]
                    if is_part or (shown and shown[0].offset < first):
                        shown = [each for each in shown if each.offset >= first and (end is None or each.offset < end)]
                    if shown:
                        self.positions[partition] = shown[-1].offset + 1
                        yield Chunk(partition, shown, header.timestamp_type), size
            except CorruptRecord as error:
                where = TopicPartition(self._topic, partition)
                raise ResponseError(ErrorCode.CORRUPT_MESSAGE, f"partition {where}", str(error)) from None
        self.positions[partition] = max(self.positions[partition], fetched.reached)

    def _records(
        self,
        fetched: _Fetched,
        position: int,
        header: BatchHeader,
        aborted: AbortedTransactions | None,
        *,
        is_part: bool,
    ) -> Iterable[tuple[Iterator[Record], int]]:
        """The records of a batch that a reader is to see; ``is_part``: not all of them are asked for."""
        data = fetched.data
        check_crc(data, position, header)
        if header.is_control:
            if aborted is not None:
                for record in iter_records(data, position):
                    if parse_control_record(record) == ControlRecordType.ABORT:
                        aborted.ended(header.producer_id)
            return ()
        if aborted is not None and header.is_transactional and aborted.covers(header):
            return ()
        if self._wants is not None and not is_part and not self._wants(fetched.partition, header):
            return ()
        return iter_windows(data, position)

    # --- Problems ---------------------------------------------------------------------------------------------------

    def _problem(self, partition: int, code: int) -> list[Chunk | Skipped]:
        where = TopicPartition(self._topic, partition)
        error = ResponseError(code, f"partition {where}")
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            wanted = self._fetched[partition]
            start = known(list_offsets(self._client, {where: EARLIEST}))[where]
            if start.offset <= wanted:
                raise error
            self._fetched[partition] = self.positions[partition] = start.offset
            return [Skipped(partition, wanted, start.offset)]
        if not error.retriable:
            raise error
        self._forget([partition])
        self._failed(error)
        return []

    def _check_length(self, data: PartitionData) -> None:
        """``ResponseError`` for a log that was cut (by an unclean election): what it is read up to does not come.

        A new leader may be late to know how much of its log is committed: until a replica that hangs is out of the ISR.
        """
        partition, high_watermark = data.partition_index, int(data.high_watermark)
        end = self._ends.get(partition)
        if data.records or end is None or high_watermark >= end:
            self._short_since.pop(partition, None)
        elif time.monotonic() - self._short_since.setdefault(partition, time.monotonic()) >= 2 * self._client.timeout:
            where = f"partition {TopicPartition(self._topic, partition)}"
            problem = f"its log was cut: it ends at offset {high_watermark}, not at {end} as when the reading began"
            raise ResponseError(ErrorCode.OFFSET_OUT_OF_RANGE, where, problem)

    def _forget(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._silent_since.setdefault(partition, time.monotonic())
            self._client.forget_leader(TopicPartition(self._topic, partition))

    def _failed(self, error: ResponseError | ConnectionFailed | RequestTimedOut) -> None:
        """Wait a moment, or raise the error when it has been going on for too long."""
        if isinstance(error, ResponseError) and not error.retriable:
            raise error
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        elif now - self._failing_since >= self._client.timeout:
            raise error
        self._client.back_off(0.1)


class AbortedTransactions:
    """The aborted transactions of a fetch (KIP-98): which batches of which producers are to be left out.

    A producer's transaction is aborted from the first offset that the broker names until its abort marker comes.
    """

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        """``transactions``: (first offset, producer id)."""
        self._coming = sorted(transactions, reverse=True)
        self._open: set[int] = set()

    def covers(self, header: BatchHeader) -> bool:
        """Whether a transactional batch is part of one of them."""
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._open.add(self._coming.pop()[1])
        return header.producer_id in self._open

    def ended(self, producer_id: int) -> None:
        """The producer's abort marker has come."""
        self._open.discard(producer_id)
