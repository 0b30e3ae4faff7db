"""Batches of a partition as they are in its log, and the time of the record at an offset by its batch's header."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kbroker.client.cluster import Client
from kbroker.client.errors import known
from kbroker.client.leaders import ask_leaders
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import BatchHeader, TimestampType, walk_headers
from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

_NAMES_UP_TO: Final = 12
"""Fetch names topics up to this version; later ones have ids only."""


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """The answer to one Fetch of a partition. ``high_watermark`` is -1 where the broker does not tell."""

    high_watermark: int
    batches: list[tuple[BatchHeader, bytes]]
    """Whole batches with all their bytes, from that on in which the offset is."""

    def next_offset(self, offset: int) -> int:
        """The offset after the last batch; ``offset`` without any."""
        return self.batches[-1][0].next_offset if self.batches else offset


def received_records(data: PartitionData) -> memoryview:
    """The batches in a partition's answer; a response that was received has them in one piece."""
    records = data.records
    if records is None:
        return memoryview(b"")
    assert isinstance(records, memoryview)
    return records


def fetch_batches(client: Client, partition: TopicPartition, offset: int, max_bytes: int) -> FetchedBatches:
    """The batches from an offset on, at most ``max_bytes`` unless the first is larger.

    Open and aborted transactions and control batches included. ``ResponseError`` (OFFSET_OUT_OF_RANGE) for an offset
    that the log does not have, ``CorruptRecord`` for bytes that are no batch.
    """

    def make(wanted: Mapping[TopicPartition, int]) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=max_bytes,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[FetchPartition(partition=index, fetch_offset=begin, partition_max_bytes=max_bytes)],
                )
                for (topic, index), begin in wanted.items()
            ],
        )

    def read(response: FetchResponse) -> Iterable[tuple[TopicPartition, int, FetchedBatches]]:
        for topic in response.responses:
            for data in topic.partitions:
                raw = bytes(received_records(data))
                found = [(header, raw[at : at + header.size]) for at, header in walk_headers(raw)]
                yield (
                    TopicPartition(topic.topic, data.partition_index),
                    int(data.error_code),
                    FetchedBatches(data.high_watermark, found),
                )

    return known(ask_leaders(client, {partition: offset}, make, read, highest=_NAMES_UP_TO))[partition]


_BYTES: Final = 16 << 10
"""Bytes of each partition: a header is enough. The first partition's batch comes whole, whatever its size."""


def times_of_records(client: Client, node_id: int, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Partition -> ms since 1970 of the first record at or after an offset, of partitions that one broker leads.

    One request. All records of a batch count as old as its first one. A partition whose batch does not fit into the
    answer, or has no time, is left out.
    """
    topics: dict[str, list[FetchPartition]] = {}
    for (topic, partition), offset in offsets.items():
        entry = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_BYTES)
        topics.setdefault(topic, []).append(entry)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_BYTES * len(offsets),
        topics=[FetchTopic(topic=topic, partitions=entries) for topic, entries in topics.items()],
    )
    response = client.ask_node(node_id, request, highest=_NAMES_UP_TO)
    found: dict[TopicPartition, int] = {}
    for answer in response.responses:
        for data in answer.partitions:
            place = TopicPartition(answer.topic, data.partition_index)
            for _, header in walk_headers(received_records(data)):
                if header.is_control or header.last_offset < offsets.get(place, 0):
                    continue
                is_append = header.timestamp_type is TimestampType.LOG_APPEND_TIME
                time_ms = header.max_timestamp if is_append else header.base_timestamp
                if time_ms >= 0:
                    found[place] = time_ms
                break
    return found
