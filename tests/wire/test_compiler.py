"""Codecs: round trips of every message and version, what absent fields hold, and what encoding refuses."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import pytest

from kbroker.types import ZERO_UUID, FileRegion, Uuid
from kbroker.wire.codec_source import contains_records
from kbroker.wire.compiler import compile_decoder, decode, encode, encode_parts, source_of
from kbroker.wire.errors import EncodeError
from kbroker.wire.messages.classic_groups import HeartbeatRequest, HeartbeatResponse
from kbroker.wire.messages.consumer_groups import ConsumerGroupHeartbeatResponse
from kbroker.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
)
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from kbroker.wire.records.consumer_group import ConsumerGroupMemberMetadataValue
from kbroker.wire.records.metadata import PartitionChangeRecord
from tests.wire.wire_support import RandomMessages, class_versions, message_classes, plain, same
from tests.with_each import with_each


@with_each(message_classes())
def test_round_trip(cls: type[Any]) -> None:
    for _, version in [pair for pair in class_versions() if pair[0] is cls]:
        blank = cls()
        assert decode(cls, version, encode(blank, version))[0] == blank, version
        for seed in range(4):
            message = RandomMessages(seed).message(cls, version)
            encoded = encode(message, version)
            for buffer in (encoded, bytearray(encoded), memoryview(encoded)):
                decoded, end = decode(cls, version, buffer)
                assert end == len(encoded)
                assert same(decoded, message), (version, seed)
            shifted, end = decode(cls, version, b"##" + encoded + b"tail", 2)
            assert same(shifted, message)
            assert end == len(encoded) + 2


def test_bytes_on_the_wire() -> None:
    """By hand, so that encoder and decoder cannot be wrong together."""
    request = HeartbeatRequest(group_id="g", generation_id=5, member_id="me", group_instance_id=None)
    assert encode(request, 0) == b"\0\1g\0\0\0\5\0\2me"
    assert encode(request, 3) == b"\0\1g\0\0\0\5\0\2me\xff\xff"
    assert encode(request, 4) == b"\2g\0\0\0\5\3me\0\0"


def test_a_tagged_field_on_the_wire() -> None:
    change = PartitionChangeRecord(partition_id=1, topic_id=ZERO_UUID, isr=[7], leader=7)
    body = b"\0\0\0\1" + bytes(16)
    # isr has tag 0: a count of 1 and one int32; leader has tag 1.
    assert encode(change, 0) == body + b"\2" + b"\0\5\2\0\0\0\7" + b"\1\4\0\0\0\7"
    assert encode(PartitionChangeRecord(partition_id=1), 0) == body + b"\0"


def test_nullable_structs() -> None:
    absent = ConsumerGroupHeartbeatResponse(member_id="m")
    assert encode(absent, 0).endswith(b"\xff\0")
    assert decode(ConsumerGroupHeartbeatResponse, 0, encode(absent, 0))[0].assignment is None
    # Inside a tagged field, presence is a varint and not a byte.
    value = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    encoded = encode(value, 0)
    assert encoded.endswith(b"\1" + b"\0\1\0")
    assert decode(ConsumerGroupMemberMetadataValue, 0, encoded)[0].classic_member_metadata is None


def test_absent_fields_hold_their_defaults() -> None:
    request, _ = decode(FetchRequest, 4, encode(FetchRequest(max_wait_ms=9), 4))
    assert (request.session_epoch, request.rack_id, request.cluster_id, request.max_wait_ms) == (-1, "", None, 9)
    first, _ = decode(FetchRequest, 4, encode(FetchRequest(), 4))
    assert first.forgotten_topics_data is not request.forgotten_topics_data


def test_a_class_is_a_dataclass() -> None:
    partition = FetchPartition(partition=3)
    assert [field.name for field in dataclasses.fields(partition)][:2] == ["partition", "current_leader_epoch"]
    assert dataclasses.replace(partition, fetch_offset=5) == FetchPartition(partition=3, fetch_offset=5)
    assert partition != FetchPartition(partition=4)
    assert repr(LeaderIdAndEpoch(leader_id=1)) == "LeaderIdAndEpoch(leader_id=1, leader_epoch=-1)"
    assert not hasattr(partition, "__dict__")
    with pytest.raises(TypeError):
        FetchPartition(nonsense=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        hash(partition)


def test_records_of_a_request_are_a_writable_view() -> None:
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=memoryview(b"0123456789"))])
    frame = bytearray(encode(ProduceRequest(topic_data=[data]), 9))
    request, _ = decode(ProduceRequest, 9, memoryview(frame))
    records = request.topic_data[0].partition_data[0].records
    assert records is not None
    records[:3] = b"abc"
    assert b"abc3456789" in frame


def test_records_of_a_response_are_passed_through() -> None:
    region = FileRegion(fd=3, position=0, length=1000)
    view = memoryview(b"x" * 500)

    def partition(index: int, records: Any) -> PartitionData:
        return PartitionData(partition_index=index, aborted_transactions=None, records=records)

    response = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="t", partitions=[partition(0, region), partition(1, [view, b"yy"]), partition(2, None)]
            )
        ]
    )
    for version in (4, 12):
        parts = encode_parts(response, version)
        assert parts[1] is region
        assert parts[3] is view
        assert parts[4] == b"yy"
        with pytest.raises(EncodeError):
            encode(response, version)
        flat = b"".join(b"r" * 1000 if part is region else bytes(part) for part in parts)  # type: ignore[arg-type]
        decoded, end = decode(FetchResponse, version, flat)
        assert end == len(flat) == sum(map(len, parts))
        sizes = [len(item.records or b"") for item in decoded.responses[0].partitions]
        assert sizes == [1000, 502, 0]


def test_what_a_version_cannot_carry() -> None:
    assert encode(HeartbeatResponse(throttle_time_ms=5), 0) == b"\0\0"  # ignorable
    with pytest.raises(EncodeError, match="group_instance_id"):
        encode(HeartbeatRequest(group_instance_id="static"), 2)
    with pytest.raises(KeyError):
        encode(HeartbeatRequest(), 5)
    with pytest.raises(KeyError):
        decode(HeartbeatRequest, -1, b"")


@pytest.mark.parametrize(
    "message",
    [
        HeartbeatRequest(generation_id=1 << 31),
        HeartbeatRequest(group_id=None),  # type: ignore[arg-type]
        HeartbeatRequest(group_id="x" * 40000),
        HeartbeatRequest(group_id="\ud800"),
        HeartbeatRequest(generation_id="1"),  # type: ignore[arg-type]
    ],
)
def test_values_that_do_not_fit(message: HeartbeatRequest) -> None:
    for version in (0, 4):
        with pytest.raises(EncodeError):
            encode(message, version)


def test_large_arrays_and_strings() -> None:
    topics = [CreatableTopic(name="é" * 300, num_partitions=1, replication_factor=1) for _ in range(300)]
    for version in (2, 7):
        request = CreateTopicsRequest(topics=topics, timeout_ms=1)
        assert plain(decode(CreateTopicsRequest, version, encode(request, version))[0]) == plain(request)
    fetch = FetchRequest(topics=[FetchTopic(topic_id=Uuid(os.urandom(16)), partitions=[FetchPartition()] * 20000)])
    assert decode(FetchRequest, 13, encode(fetch, 13))[0] == fetch


def test_strings_that_are_not_utf8_are_read_as_java_reads_them() -> None:
    frame = encode(HeartbeatRequest(group_id="abc"), 4).replace(b"abc", b"\xff(\xe2")
    assert decode(HeartbeatRequest, 4, frame)[0].group_id == "\ufffd(\ufffd"
    topics = [TopicProduceData(name="abc")]
    frame = encode(ProduceRequest(topic_data=topics), 9).replace(b"abc", b"\xff(\xe2")
    assert decode(ProduceRequest, 9, frame)[0].topic_data[0].name == "\ufffd(\ufffd"


def test_a_count_of_tagged_fields_may_be_a_longer_varint_than_it_must() -> None:
    for request, version in ((HeartbeatRequest(group_id="g"), 4), (FetchRequest(), 12)):
        frame = encode(request, version)
        assert decode(type(request), version, frame[:-1] + b"\x80\0") == (request, len(frame) + 1)
        assert decode(type(request), version, frame[:-1] + b"\x81\0\x63\1x")[0] == request


def test_adjacent_fields_are_read_at_once() -> None:
    decoder, encoder = source_of(FetchRequest, 12)
    assert "unpack_iiqiqiB(buf, p)" in decoder
    assert "pack_iiqiqi(" in encoder
    assert compile_decoder(FetchRequest, 12) is FetchRequest.__decoders__[12]  # type: ignore[attr-defined]
    assert contains_records(ProduceRequest, 9)
    assert not contains_records(FetchRequest, 12)
