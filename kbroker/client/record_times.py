"""The time of the record at an offset, by the header of its batch: how long somebody who has not read it is behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kbroker.client.batches import received_records
from kbroker.client.cluster import Client
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import TimestampType, walk_headers
from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

_BYTES: Final = 16 << 10
"""Bytes of each partition: a header is enough. The first partition's batch comes whole, whatever its size."""

_NAMES_UP_TO: Final = 12
"""Fetch names topics up to this version; later ones have ids only."""


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
