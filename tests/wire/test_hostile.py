"""Damaged and malicious bytes: a ``WireError`` or an answer, in bounded memory, whatever comes."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest

from kbroker.wire.compiler import decode, encode
from kbroker.wire.errors import UnknownApi, WireError
from kbroker.wire.headers import decode_request_header, decode_response_header, encode_request_header
from kbroker.wire.messages.classic_groups import HeartbeatRequest
from kbroker.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from kbroker.wire.messages.fetch import FetchRequest
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from kbroker.wire.messages.reassignments import AlterPartitionReassignmentsResponse
from kbroker.wire.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from kbroker.wire.primitives import MAX_ARRAY, MAX_ELEMENTS, encode_uvarint
from kbroker.wire.registry import API_KEYS
from kbroker.wire.schema import struct_spec
from tests.wire.wire_support import RandomMessages, message_classes
from tests.with_each import with_each

ALL = with_each(message_classes())


def versions_to_try(cls: type[Any]) -> list[int]:
    """The oldest, the newest, and both sides of the first flexible version."""
    spec = struct_spec(cls)
    candidates = {*spec.versions, spec.flexible.lowest, spec.flexible.lowest - 1}
    return sorted(version for version in candidates if version in spec.versions)


def attempt(cls: type[Any], version: int, frame: bytes | bytearray) -> bool:
    """Whether the frame decodes; anything but a ``WireError`` fails the test."""
    try:
        decode(cls, version, frame)
    except WireError:
        return False
    return True


@ALL
def test_cut_at_every_byte(cls: type[Any]) -> None:
    for version in versions_to_try(cls):
        frame = encode(RandomMessages(7, most=2).message(cls, version), version)
        if len(frame) > 3000:
            frame = encode(RandomMessages(8, most=1).message(cls, version), version)
        for size in range(0, len(frame), 1 + len(frame) // 1500):
            assert not attempt(cls, version, frame[:size]), (version, size)


@ALL
def test_noise(cls: type[Any]) -> None:
    rng = random.Random(cls.__name__)
    for version in versions_to_try(cls):
        frame = encode(RandomMessages(3).message(cls, version), version)
        for _ in range(60):
            noisy = bytearray(frame)
            for _ in range(rng.randint(1, 4)):
                if noisy:
                    noisy[rng.randrange(len(noisy))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            attempt(cls, version, noisy)
        for size in (1, 10, 100, 1000):
            attempt(cls, version, rng.randbytes(size))


@ALL
def test_memory_stays_in_proportion_to_the_bytes(cls: type[Any]) -> None:
    """Every byte of a small frame turned into the start of a huge count, one at a time."""
    for version in {*versions_to_try(cls)[:1], *versions_to_try(cls)[-1:]}:
        huge = b"\xff\xff\xff\xff\x07" if version in struct_spec(cls).flexible else b"\x7f\xff\xff\xff"
        frame = encode(RandomMessages(5, most=1).message(cls, version), version)[:300]
        attempt(cls, version, frame)  # compiles
        tracemalloc.start()
        try:
            for position in range(len(frame)):
                attempt(cls, version, frame[:position] + huge + frame[position + len(huge) :])
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 2_000_000, (version, peak)


def with_unknown_tags(frame: bytes, *tags: tuple[int, bytes]) -> bytes:
    """The frame of a message whose last byte is an empty set of tagged fields, with others in its place."""
    assert frame[-1] == 0
    fields = b"".join(encode_uvarint(tag) + encode_uvarint(len(value)) + value for tag, value in tags)
    return frame[:-1] + encode_uvarint(len(tags)) + fields


@with_each(cls for cls in message_classes() if struct_spec(cls).flexible.highest > 0)
def test_unknown_tags_are_skipped(cls: type[Any]) -> None:
    version = struct_spec(cls).versions.highest
    blank = cls()
    frame = encode(blank, version)
    strange = with_unknown_tags(frame, (77, b"?" * 200), (78, b""), (77, b"again"))
    assert decode(cls, version, strange) == (blank, len(strange))
    for size in range(len(frame), len(strange)):
        assert not attempt(cls, version, strange[:size])
    assert attempt(cls, version, with_unknown_tags(frame, *[(100 + tag, b"") for tag in range(64)]))
    assert not attempt(cls, version, with_unknown_tags(frame, *[(100 + tag, b"") for tag in range(65)]))
    assert not attempt(cls, version, frame[:-1] + b"\xff\xff\xff\xff\x0f")


def test_a_known_tag_fills_its_size() -> None:
    frame = encode(FetchRequest(), 12)
    assert attempt(FetchRequest, 12, with_unknown_tags(frame, (0, b"\4abc")))
    assert not attempt(FetchRequest, 12, with_unknown_tags(frame, (0, b"\4abcd")))
    assert not attempt(FetchRequest, 12, with_unknown_tags(frame, (0, b"\5abc")))


def test_null_where_it_is_not_allowed() -> None:
    assert not attempt(HeartbeatRequest, 0, b"\xff\xff" + bytes(8))
    assert not attempt(HeartbeatRequest, 4, b"\0" + bytes(8))
    assert not attempt(HeartbeatRequest, 0, b"\xff\x00" + bytes(300))


def test_overlong_varints() -> None:
    assert not attempt(HeartbeatRequest, 4, b"\x80\x80\x80\x80\x80\x00" + bytes(20))
    assert not attempt(HeartbeatRequest, 4, b"\xff\xff\xff\xff\x1f" + bytes(20))
    # Longer than need be, but no longer than five bytes: read, as Kafka reads it.
    assert attempt(HeartbeatRequest, 4, b"\x82\x80\x00g" + b"\0\0\0\1" + b"\1" + b"\0" + b"\0")


def test_a_string_longer_than_kafka_allows() -> None:
    name = b"x" * 40000
    frame = encode_uvarint(len(name) + 1) + name + b"\0\0\0\1" + b"\1" + b"\0" + b"\0"
    assert not attempt(HeartbeatRequest, 4, frame)


def test_a_declared_count_reserves_nothing() -> None:
    frame = b"\x7f\xff\xff\xff" + b"\0\1a" * 20_000
    assert not attempt(MetadataRequest, 1, frame)  # compiles
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="do not fit"):
            decode(MetadataRequest, 1, frame)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_request_headers() -> None:
    for api in API_KEYS.values():
        for version in range(api.valid_versions.lowest, api.valid_versions.highest + 1):
            header = encode_request_header(api.key, version, 99, "client")
            for size in range(len(header)):
                with pytest.raises(WireError):
                    decode_request_header(header[:size])
    with pytest.raises(UnknownApi):
        decode_request_header(b"\0\4\0\0" + bytes(10))
    with pytest.raises(WireError):
        decode_request_header(b"\0\x12\0\3" + bytes(4) + b"\0\1a" + b"\x41" + bytes(200))
    rng = random.Random(1)
    for _ in range(3000):
        try:
            decode_request_header(b"\0" + rng.randbytes(rng.randrange(40)))
        except WireError:
            pass
    for size in range(4):
        with pytest.raises(WireError):
            decode_response_header(12, 4, bytes(size))


def test_the_arrays_of_a_request_share_a_budget() -> None:
    """Two bytes of a frame became a thousand of memory, and work for half a minute, in many APIs."""
    keys = encode(FindCoordinatorRequest(coordinator_keys=["g"] * MAX_ELEMENTS), 4)
    assert len(decode(FindCoordinatorRequest, 4, keys)[0].coordinator_keys) == MAX_ELEMENTS
    one_more = encode(FindCoordinatorRequest(coordinator_keys=["g"] * (MAX_ELEMENTS + 1)), 4)
    with pytest.raises(WireError, match="more than 100000 elements"):
        decode(FindCoordinatorRequest, 4, one_more)
    quarter = ["k"] * (MAX_ELEMENTS // 4)
    resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=quarter)
    with pytest.raises(WireError, match="more than 100000 elements"):
        decode(DescribeConfigsRequest, 4, encode(DescribeConfigsRequest(resources=[resource] * 4), 4))
    numbers = [CreatableTopic(name="t", assignments=[CreatableReplicaAssignment(broker_ids=[1] * MAX_ELEMENTS)])]
    with pytest.raises(WireError, match="more than 100000 elements"):
        decode(CreateTopicsRequest, 7, encode(CreateTopicsRequest(topics=numbers), 7))


def test_responses_are_as_large_as_the_cluster() -> None:
    brokers = [MetadataResponseBroker(node_id=number) for number in range(MAX_ELEMENTS + 1)]
    response, _ = decode(MetadataResponse, 12, encode(MetadataResponse(brokers=brokers), 12))
    assert len(response.brokers) == MAX_ELEMENTS + 1


def test_an_array_of_a_response_has_kafkas_limit() -> None:
    response = encode(AlterPartitionReassignmentsResponse(), 0)
    shape = encode_uvarint(MAX_ARRAY + 2) + b"\1\1\0" * (MAX_ARRAY + 1)
    with pytest.raises(WireError, match="responses: more than 1000000 elements"):
        decode(AlterPartitionReassignmentsResponse, 0, response[:-2] + shape + b"\0")
