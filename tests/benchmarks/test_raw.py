"""The requests that the benchmarks write by hand are what the protocol says."""

from __future__ import annotations

import struct

import pytest

pytest.importorskip("confluent_kafka", reason="the `bench` extra is not installed")

from benchmarks import raw
from kbroker.wire.batch_header import check_crc, parse_header
from kbroker.wire.compiler import decode, encode
from kbroker.wire.headers import decode_request_header
from kbroker.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kbroker.wire.messages.metadata import MetadataRequest
from kbroker.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kbroker.wire.record_batch import iter_records


def test_produce_is_one_valid_record_to_one_partition() -> None:
    data = raw.produce_frame("topic", 3, b"value")
    assert struct.unpack_from(">i", data) == (len(data) - 4,)
    header, offset = decode_request_header(data[4:])
    assert (header.api_key, header.api_version, header.client_id) == (0, 7, "benchmark")
    request, end = decode(ProduceRequest, 7, data[4:], offset)
    assert end == len(data) - 4
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    assert (topic.name, partition.index, request.acks, request.transactional_id) == ("topic", 3, -1, None)
    assert partition.records is not None
    check_crc(partition.records, 0, parse_header(partition.records, 0))
    assert [(record.key, record.value) for record in iter_records(partition.records)] == [(None, b"value")]


def test_the_error_code_is_found_in_the_response() -> None:
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="topic", partition_responses=[PartitionProduceResponse(index=3, error_code=0x1234)]
            )
        ]
    )
    data = struct.pack(">i", 77) + encode(response, 7)
    assert struct.unpack_from(">h", data, raw.produce_error_offset("topic")) == (0x1234,)


def test_metadata_asks_for_one_topic_that_may_be_created() -> None:
    data = raw.metadata_frame("topic")[4:]
    header, offset = decode_request_header(data)
    request, end = decode(MetadataRequest, header.api_version, data, offset)
    assert end == len(data)
    assert request.topics is not None
    assert [topic.name for topic in request.topics] == ["topic"]
    assert request.allow_auto_topic_creation


def test_list_offsets_asks_for_the_latest_offset_of_one_partition() -> None:
    data = raw.list_offsets_frame("topic", 3)
    header, offset = decode_request_header(data[4:])
    assert (header.api_key, header.api_version) == (2, 2)
    request, end = decode(ListOffsetsRequest, 2, data[4:], offset)
    assert end == len(data) - 4
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index, partition.timestamp, request.replica_id) == ("topic", 3, -1, -1)


def test_the_listed_offset_is_found_in_the_response() -> None:
    def response(**fields: int) -> bytes:
        answer = ListOffsetsPartitionResponse(partition_index=3, **fields)
        topics = [ListOffsetsTopicResponse(name="topic", partitions=[answer])]
        return bytes(4) + encode(ListOffsetsResponse(topics=topics), 2)

    assert raw.listed_offset(response(offset=1 << 40), "topic") == 1 << 40
    with pytest.raises(RuntimeError, match="error code 3"):
        raw.listed_offset(response(error_code=3), "topic")
