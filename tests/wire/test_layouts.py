"""The ``construct`` layouts: a second decoder that has to agree with the compiled one, and trees for people."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kbroker.wire.compiler import decode, encode
from kbroker.wire.errors import WireError
from kbroker.wire.framing import request_parts, response_parts
from kbroker.wire.layout_text import render_frame, render_message
from kbroker.wire.layouts import DamagedFrame, decode_by_layout, parse_frame
from kbroker.wire.messages.classic_groups import HeartbeatRequest
from kbroker.wire.messages.fetch import FetchableTopicResponse, FetchResponse, LeaderIdAndEpoch, PartitionData
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kbroker.wire.record_batch import Record, build_batch
from kbroker.wire.records.metadata import TopicRecord
from kbroker.wire.schema import struct_spec
from tests.wire.wire_support import RandomMessages, message_classes, same
from tests.with_each import with_each

ALL = with_each(message_classes())


@ALL
def test_both_decoders_agree(cls: type[Any]) -> None:
    lowest, highest = struct_spec(cls).versions
    for version in range(lowest, highest + 1):
        for seed in (1, 2):
            message = RandomMessages(seed, most=2).message(cls, version)
            frame = encode(message, version)
            decoded, end = decode_by_layout(cls, version, frame + b"tail")
            assert end == len(frame), (version, seed)
            assert same(decoded, message), (version, seed)
            assert same(decode(cls, version, frame)[0], decoded)


@ALL
def test_both_decoders_refuse_the_same(cls: type[Any]) -> None:
    """Damaged frames: either both give the same message, or both refuse."""
    rng = random.Random(cls.__name__)
    version = struct_spec(cls).versions.highest
    frame = encode(RandomMessages(3, most=1).message(cls, version), version)
    for _ in range(12):
        noisy = bytearray(frame[: rng.choice((len(frame), len(frame), rng.randrange(len(frame) + 1)))])
        for _ in range(rng.randint(0, 2)):
            if noisy:
                noisy[rng.randrange(len(noisy))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        results: list[Any] = []
        for decoder in (decode, decode_by_layout):
            try:
                results.append(decoder(cls, version, bytes(noisy)))
            except WireError:
                results.append(None)
        if None in results:
            assert results == [None, None], bytes(noisy)
        else:
            assert results[0][1] == results[1][1]
            assert same(results[0][0], results[1][0]) or "nan" in repr(results[0][0])


def produce_frame() -> bytes:
    batch = build_batch([Record(0, 1000, b"key", b"value", ())])
    topic = TopicProduceData(
        name="flights", partition_data=[PartitionProduceData(index=2, records=memoryview(batch + batch))]
    )
    request = ProduceRequest(acks=-1, timeout_ms=5, topic_data=[topic])
    return b"".join(request_parts(0, 9, 77, "rdkafka", request))


def test_a_request_as_a_tree() -> None:
    text = render_frame(produce_frame())
    lines = [line.split(maxsplit=1)[1] for line in text.splitlines()]
    assert "api_key: Int16 Produce = 0" in lines[2]
    assert "client_id: Str = 'rdkafka'" in text
    assert "      30  08 66 6c 69 67 68 74 73           name: Str = 'flights'" in text
    assert text.count("batch of 7") == 2
    # The size field in front is optional.
    bare = render_frame(produce_frame()[4:])
    assert len(bare.splitlines()) == len(text.splitlines()) - 1


def test_a_response_as_a_tree() -> None:
    partition = PartitionData(
        current_leader=LeaderIdAndEpoch(leader_id=3, leader_epoch=4), aborted_transactions=None, records=b"?" * 30
    )
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    frame = b"".join(response_parts(1, 12, 77, response))  # type: ignore[arg-type]
    text = render_frame(frame, response_to=(1, 12))
    assert "aborted_transactions: list[AbortedTransaction] = null" in text
    assert "no further batch" in text
    assert "leader_id: Int32 = 3" in text
    assert "left over" not in text
    assert "left over: Bytes = 61 62" in render_frame(frame[4:] + b"ab", response_to=(1, 12))


def test_every_byte_of_a_frame_is_in_its_tree() -> None:
    frame = produce_frame()
    position = 0
    for node in parse_frame(frame):
        assert node.start == position
        position = node.stop
    assert position == len(frame)


def test_a_damaged_frame_is_shown_as_far_as_it_goes() -> None:
    frame = produce_frame()[4:]
    for size in range(len(frame)):
        with pytest.raises(DamagedFrame) as caught:
            render_frame(frame[:size])
        assert str(caught.value)
    assert "partition_data" in caught.value.tree
    assert "client_id: Str = 'rdkafka'" in caught.value.tree


@pytest.mark.parametrize(
    ("data", "response_to", "reason"),
    [
        (b"", None, "api_key"),
        (b"\0\4\0\0\0\0\0\1\0\0", None, "unknown API key 4"),
        (b"\0\x0c\0\x63\0\0\0\1\xff\xff\0", None, "Heartbeat has versions 0-4, not 99"),
        (b"\0\0\0\1", (4, 0), "unknown API key 4"),
        (b"\0\0\0\1\0", (12, 5), "Heartbeat has versions 0-4, not 5"),
    ],
)
def test_what_is_no_frame(data: bytes, response_to: tuple[int, int] | None, reason: str) -> None:
    with pytest.raises(DamagedFrame, match=reason):
        render_frame(data, response_to=response_to)


def test_unknown_tags_are_shown() -> None:
    frame = encode(HeartbeatRequest(group_id="g"), 4)[:-1] + b"\1\x4d\2ab"
    text = render_message(HeartbeatRequest, 4, frame)
    assert "unknown tag 77: Bytes = 61 62" in text


def test_a_record_as_a_tree() -> None:
    text = render_message(TopicRecord, 0, encode(TopicRecord(name="flights"), 0))
    assert "name: Str = 'flights'" in text
    with pytest.raises(KeyError):
        render_message(TopicRecord, 9, b"")
