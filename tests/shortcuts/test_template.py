"""Frames of one shape: what is recognised, and what is made."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.node.shortcuts.template import PLACEHOLDER, RequestTemplate, request_template, response_template
from kbroker.wire.compiler import decode, encode
from kbroker.wire.framing import request_parts, response_parts
from kbroker.wire.headers import decode_response_header
from kbroker.wire.messages.classic_groups import HeartbeatRequest
from kbroker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from kbroker.wire.registry import API_KEYS

int64 = st.integers(-(1 << 63), (1 << 63) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)


def offsets_request(*timestamps: int, name: str = "topic") -> ListOffsetsRequest:
    partitions = [
        ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index, timestamp in enumerate(timestamps)
    ]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=partitions)])


def frame_of(request: object, version: int, correlation_id: int) -> memoryview:
    """A request as the connection sees it, without its size."""
    key = type(request).api_key  # type: ignore[attr-defined]
    parts = request_parts(key, version, correlation_id, "client", request)
    return memoryview(b"".join(map(bytes, parts))[4:])


@given(st.integers(1, 11), st.lists(int64, min_size=1, max_size=5), st.data())
def test_fields_of_requests_are_found_and_nothing_else_may_differ(
    version: int, timestamps: list[int], data: st.DataObject
) -> None:
    placeholders = range(PLACEHOLDER, PLACEHOLDER + len(timestamps))
    first = offsets_request(*[0] * len(timestamps))
    template = request_template(
        frame_of(first, version, 1), first, offsets_request(*placeholders), version, placeholders
    )
    assert template is not None
    correlation_id = data.draw(int32)
    frame = frame_of(offsets_request(*timestamps), version, correlation_id)
    assert template.match(frame) == (correlation_id, *timestamps)
    assert template.match(frame[:-1]) is None
    assert template.match(frame_of(offsets_request(*timestamps, name="other"), version, correlation_id)) is None
    assert template.match(frame_of(offsets_request(*timestamps, 0), version, correlation_id)) is None
    if version > 1:
        assert template.match(frame_of(offsets_request(*timestamps), version - 1, correlation_id)) is None
    changed = bytearray(frame)
    changed[data.draw(st.integers(0, len(frame) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    found = template.match(memoryview(changed))
    assert found != (correlation_id, *timestamps)


def test_a_frame_that_says_more_than_its_request_is_not_taken() -> None:
    request = offsets_request(0)
    frame = bytes(frame_of(request, 7, 1))
    assert frame.endswith(b"\0")
    tagged = memoryview(frame[:-1] + b"\1\x63\1x")
    assert request_template(tagged, request, offsets_request(PLACEHOLDER), 7, [PLACEHOLDER]) is None


@pytest.mark.parametrize("version", range(5))
def test_requests_without_fields(version: int) -> None:
    request = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    template = RequestTemplate(frame_of(request, version, 5))
    assert template.match(frame_of(request, version, -9)) == (-9,)
    assert template.match(frame_of(dataclasses.replace(request, generation_id=4), version, 5)) is None


@given(st.integers(4, 11), int32, int64, int32)
def test_responses_are_those_that_would_be_encoded(
    version: int, correlation_id: int, offset: int, leader_epoch: int
) -> None:
    def response(offset: int, leader_epoch: int) -> ListOffsetsResponse:
        partition = ListOffsetsPartitionResponse(partition_index=3, offset=offset, leader_epoch=leader_epoch)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="topic", partitions=[partition])])

    key = ListOffsetsRequest.api_key
    reply = response_template(key, version, response(PLACEHOLDER, -0x6E6D6C6B), "qi", (PLACEHOLDER, -0x6E6D6C6B))
    made = reply(correlation_id, offset, leader_epoch)
    wanted = response_parts(key, version, correlation_id, response(offset, leader_epoch))
    assert made == b"".join(map(bytes, wanted))  # type: ignore[arg-type]
    _, at = decode_response_header(key, version, made[4:])
    assert decode(API_KEYS[key].response, version, made[4:], at)[0] == response(offset, leader_epoch)
    assert encode(response(offset, leader_epoch), version) == made[4 + at :]
