"""Batches of a partition as they are in its log: headers and bytes, records undecoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kbroker.client.cluster import Client
from kbroker.client.errors import known
from kbroker.client.leaders import ask_leaders
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import BatchHeader, walk_headers
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
